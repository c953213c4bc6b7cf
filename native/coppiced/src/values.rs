//! Between MessagePack values and types.

use coppice_wire::{MAX_FRAME_BYTES, Value, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors::{FaultDomain, Spec, Typed};

#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error("{0}")]
    Params(String),
    #[error("Parameter `{name}` is {given}; expected {expected}")]
    Param {
        name: &'static str,
        given: String,
        expected: String,
    },
    #[error("Arguments of {length} bytes do not fit in a frame of {MAX_FRAME_BYTES} bytes")]
    TooLarge { length: usize },
    #[error("Answer can't be encoded: {0}")]
    Encode(String),
}

impl Typed for ValueError {
    fn spec(&self) -> Spec {
        match self {
            ValueError::Params(_) | ValueError::Param { .. } => Spec::new("INVALID_ARGUMENT", FaultDomain::User)
                .remedy("Correct the parameter; docs/protocol.md lists the parameters of every method."),
            ValueError::TooLarge { .. } => {
                Spec::new("FRAME_TOO_LARGE", FaultDomain::User).remedy("Send the data in several pieces.")
            }
            ValueError::Encode(_) => Spec::new("INTERNAL", FaultDomain::Bug),
        }
    }
}

/// Typed parameters of a method; the error names the field and what is expected.
pub fn params<T: DeserializeOwned>(params: Value) -> Result<T, ValueError> {
    let params = match params {
        Value::Nil => Value::Map(Vec::new()),
        Value::Map(_) => params,
        other => {
            return Err(ValueError::Params(format!(
                "Parameters are {}; expected a map",
                kind(&other)
            )));
        }
    };
    serde_path_to_error::deserialize(params).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        match path.as_str() {
            "." => ValueError::Params(format!("Parameters: {reason}")),
            _ => ValueError::Params(format!("Parameter `{path}`: {reason}")),
        }
    })
}

pub fn to_value<T: Serialize>(message: &T) -> Result<Value, ValueError> {
    let payload = encode(message).map_err(|error| ValueError::Encode(error.to_string()))?;
    decode(&payload).map_err(|error| ValueError::Encode(error.to_string()))
}

pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| error.to_string())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "a boolean",
        Value::Integer(_) | Value::F32(_) | Value::F64(_) => "a number",
        Value::String(_) => "a string",
        Value::Binary(_) => "binary data",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        Value::Ext(..) => "an extension value",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Example {
        #[allow(dead_code)]
        memory_size: u32,
    }

    fn refusal(value: Value) -> String {
        params::<Example>(value).unwrap_err().to_string()
    }

    #[test]
    fn params_given_a_wrong_type_name_the_field_and_the_expected_type() {
        let message = refusal(Value::Map(vec![("memorySize".into(), "big".into())]));
        assert!(message.contains("memorySize") && message.contains("u32"), "{message}");
    }

    #[test]
    fn params_given_a_negative_number_name_the_field() {
        let message = refusal(Value::Map(vec![("memorySize".into(), (-1).into())]));
        assert!(message.contains("memorySize"), "{message}");
    }

    #[test]
    fn params_given_a_missing_or_unknown_field_name_it() {
        assert!(refusal(Value::Nil).contains("missing field `memorySize`"));
        let message = refusal(Value::Map(vec![("memorySiez".into(), 1.into())]));
        assert!(
            message.contains("memorySiez") && message.contains("expected `memorySize`"),
            "{message}"
        );
    }

    #[test]
    fn params_given_an_array_are_refused() {
        assert!(refusal(Value::Array(vec![1.into()])).contains("expected a map"));
    }
}
