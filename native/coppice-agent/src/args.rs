//! Takes a request's arguments apart. Every refusal names the field, what it must be and what it was.

use std::ffi::CString;

use coppice_wire::Value;

use crate::failure::Coded;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgsError {
    #[error("Argument '{field}' is missing: it must be {wanted}")]
    Missing { field: String, wanted: &'static str },
    #[error("Argument '{field}' must be {wanted}, not {given}")]
    Kind {
        field: String,
        wanted: &'static str,
        given: String,
    },
    #[error("Argument '{field}' is refused: {reason}")]
    Refused { field: String, reason: String },
    #[error("Argument '{field}' is unknown; known are: {known}")]
    Unknown { field: String, known: String },
    #[error("Arguments must be a map, not {given}")]
    NotAMap { given: String },
}

impl Coded for ArgsError {
    fn code(&self) -> &'static str {
        "INVALID_ARGUMENT"
    }
}

/// Longest piece of a refused value that is repeated in the error.
const SHOWN_BYTES: usize = 60;

type Result<T> = std::result::Result<T, ArgsError>;

/// The arguments of one request. Each field is taken once; `finish` refuses what nobody took.
pub struct Args {
    fields: Vec<(String, Value)>,
    asked: Vec<&'static str>,
}

impl Args {
    pub fn new(value: Value) -> Result<Self> {
        let Value::Map(entries) = value else {
            return Err(ArgsError::NotAMap { given: show(&value) });
        };
        let mut fields = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let Some(name) = key.as_str() else {
                return Err(ArgsError::NotAMap {
                    given: format!("a map with the key {}", show(&key)),
                });
            };
            if !is_absent(&value) {
                fields.push((name.to_owned(), value));
            }
        }
        Ok(Self {
            fields,
            asked: Vec::new(),
        })
    }

    /// Refuses fields that no `take` asked for.
    pub fn finish(self) -> Result<()> {
        match self.fields.into_iter().next() {
            None => Ok(()),
            Some((field, _)) => Err(ArgsError::Unknown {
                field,
                known: self.asked.join(", "),
            }),
        }
    }

    fn take(&mut self, field: &'static str) -> Option<Value> {
        self.asked.push(field);
        let index = self.fields.iter().position(|(name, _)| name == field)?;
        Some(self.fields.swap_remove(index).1)
    }

    fn require<T>(&self, field: &'static str, wanted: &'static str, taken: Option<T>) -> Result<T> {
        taken.ok_or_else(|| ArgsError::Missing {
            field: field.to_owned(),
            wanted,
        })
    }

    pub fn optional_string(&mut self, field: &'static str) -> Result<Option<String>> {
        self.take(field).map(|value| string(field, value)).transpose()
    }

    pub fn string(&mut self, field: &'static str) -> Result<String> {
        let taken = self.optional_string(field)?;
        self.require(field, "a string", taken)
    }

    /// A string that the kernel takes: without NUL.
    pub fn optional_c_string(&mut self, field: &'static str) -> Result<Option<CString>> {
        self.take(field).map(|value| c_string(field, value)).transpose()
    }

    /// A path that begins with `/`.
    pub fn path(&mut self, field: &'static str) -> Result<CString> {
        let taken = self.optional_c_string(field)?;
        let path = self.require(field, "an absolute path", taken)?;
        if path.as_bytes().first() != Some(&b'/') {
            let reason = format!("'{}' must begin with '/'", path.to_string_lossy());
            return Err(ArgsError::Refused {
                field: field.to_owned(),
                reason,
            });
        }
        Ok(path)
    }

    /// Bytes; text is taken as its UTF-8.
    pub fn optional_bytes(&mut self, field: &'static str) -> Result<Option<Vec<u8>>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Binary(bytes)) => Ok(Some(bytes)),
            Some(Value::String(text)) => Ok(Some(text.into_bytes())),
            Some(other) => Err(kind(field, "bytes", &other)),
        }
    }

    pub fn bytes(&mut self, field: &'static str) -> Result<Vec<u8>> {
        let taken = self.optional_bytes(field)?;
        self.require(field, "bytes", taken)
    }

    /// A whole number within the range. Floating-point numbers without a fraction are taken: JavaScript has no other.
    pub fn optional_integer(
        &mut self,
        field: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let whole = |number: f64| (number.fract() == 0.0 && (0.0..1.8e19).contains(&number)).then_some(number as u64);
        let Some(number) = value.as_u64().or_else(|| value.as_f64().and_then(whole)) else {
            return Err(kind(field, "a whole number, not negative", &value));
        };
        if !range.contains(&number) {
            let reason = format!("{number} is not within {} to {}", range.start(), range.end());
            return Err(ArgsError::Refused {
                field: field.to_owned(),
                reason,
            });
        }
        Ok(Some(number))
    }

    pub fn integer(&mut self, field: &'static str, range: std::ops::RangeInclusive<u64>) -> Result<u64> {
        let taken = self.optional_integer(field, range)?;
        self.require(field, "a whole number", taken)
    }

    pub fn flag(&mut self, field: &'static str) -> Result<bool> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Boolean(flag)) => Ok(flag),
            Some(other) => Err(kind(field, "true or false", &other)),
        }
    }

    /// A program and its arguments: at least one string.
    pub fn argv(&mut self) -> Result<Vec<CString>> {
        const WANTED: &str = "an array of strings";
        let taken = self.take("argv");
        let Value::Array(items) = self.require("argv", WANTED, taken)? else {
            return Err(ArgsError::Kind {
                field: "argv".into(),
                wanted: WANTED,
                given: "something else".into(),
            });
        };
        if items.first().is_none_or(|first| first.as_str() == Some("")) {
            let reason = "it must begin with the program's name or path".to_owned();
            return Err(ArgsError::Refused {
                field: "argv".into(),
                reason,
            });
        }
        items
            .into_iter()
            .enumerate()
            .map(|(index, item)| c_string(&format!("argv[{index}]"), item))
            .collect()
    }

    /// Environment variables: a map of strings.
    pub fn env(&mut self) -> Result<Vec<(String, CString)>> {
        let entries = match self.take("env") {
            None => return Ok(Vec::new()),
            Some(Value::Map(entries)) => entries,
            Some(other) => return Err(kind("env", "a map of strings", &other)),
        };
        let mut env = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let name = string("env", key)?;
            if name.is_empty() || name.contains(['=', '\0']) {
                let reason = format!("{name:?} can't be the name of a variable");
                return Err(ArgsError::Refused {
                    field: "env".into(),
                    reason,
                });
            }
            if !is_absent(&value) {
                let value = c_string(&format!("env.{name}"), value)?;
                env.push((name, value));
            }
        }
        Ok(env)
    }

    /// A map of its own, such as `until`.
    pub fn optional_map(&mut self, field: &'static str) -> Result<Option<Args>> {
        match self.take(field) {
            None => Ok(None),
            Some(value @ Value::Map(_)) => Args::new(value).map(Some),
            Some(other) => Err(kind(field, "a map", &other)),
        }
    }
}

/// Nil, and what msgpackr makes of JavaScript's `undefined` (extension 0).
fn is_absent(value: &Value) -> bool {
    matches!(value, Value::Nil | Value::Ext(0, _))
}

fn string(field: &str, value: Value) -> Result<String> {
    match value {
        Value::String(text) if text.is_str() => Ok(text.into_str().unwrap_or_default()),
        other => Err(kind(field, "a string", &other)),
    }
}

fn c_string(field: &str, value: Value) -> Result<CString> {
    CString::new(string(field, value)?).map_err(|_| ArgsError::Refused {
        field: field.to_owned(),
        reason: "it contains a NUL".to_owned(),
    })
}

fn kind(field: &str, wanted: &'static str, given: &Value) -> ArgsError {
    ArgsError::Kind {
        field: field.to_owned(),
        wanted,
        given: show(given),
    }
}

fn show(value: &Value) -> String {
    let kind = match value {
        Value::Binary(_) => return "bytes".to_owned(),
        Value::Array(_) => return "an array".to_owned(),
        Value::Map(_) => return "a map".to_owned(),
        Value::Nil => return "nil".to_owned(),
        Value::Ext(..) => return "an extension type".to_owned(),
        other => other.to_string(),
    };
    kind.chars().take(SHOWN_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(entries: &[(&str, Value)]) -> Args {
        let entries = entries
            .iter()
            .map(|(key, value)| (Value::from(*key), value.clone()))
            .collect();
        Args::new(Value::Map(entries)).unwrap()
    }

    #[test]
    fn finish_with_a_field_that_nobody_took_names_it_and_the_known_ones() {
        let mut args = args(&[("comand", Value::from("x"))]);
        let _ = args.optional_string("command");
        let message = args.finish().unwrap_err().to_string();
        assert_eq!(message, "Argument 'comand' is unknown; known are: command");
    }

    #[test]
    fn argv_with_a_number_inside_names_its_place() {
        let mut args = args(&[("argv", Value::Array(vec![Value::from("echo"), Value::from(3)]))]);
        assert_eq!(
            args.argv().unwrap_err().to_string(),
            "Argument 'argv[1]' must be a string, not 3"
        );
    }

    #[test]
    fn argv_with_an_empty_program_is_refused() {
        for argv in [vec![], vec![Value::from("")]] {
            let error = args(&[("argv", Value::Array(argv))]).argv().unwrap_err();
            assert!(matches!(error, ArgsError::Refused { field, .. } if field == "argv"));
        }
    }

    #[test]
    fn string_with_a_nul_inside_is_refused() {
        let error = args(&[("cwd", Value::from("a\0b"))])
            .optional_c_string("cwd")
            .unwrap_err();
        assert_eq!(error.to_string(), "Argument 'cwd' is refused: it contains a NUL");
    }

    #[test]
    fn path_that_is_relative_is_refused() {
        assert!(args(&[("path", Value::from("etc/passwd"))]).path("path").is_err());
    }

    #[test]
    fn integer_outside_its_range_or_with_a_fraction_is_refused() {
        assert!(args(&[("n", Value::from(11))]).integer("n", 0..=10).is_err());
        assert!(args(&[("n", Value::from(-1))]).integer("n", 0..=10).is_err());
        assert!(args(&[("n", Value::from(1.5))]).integer("n", 0..=10).is_err());
        assert_eq!(args(&[("n", Value::from(2.0))]).integer("n", 0..=10), Ok(2));
    }

    #[test]
    fn env_with_an_equals_sign_in_a_name_is_refused() {
        let env = Value::Map(vec![(Value::from("A=B"), Value::from("x"))]);
        assert!(args(&[("env", env)]).env().is_err());
    }

    #[test]
    fn field_that_is_nil_or_undefined_counts_as_absent() {
        let mut args = args(&[("cwd", Value::Nil), ("name", Value::Ext(0, vec![0]))]);
        assert_eq!(args.optional_string("cwd"), Ok(None));
        assert_eq!(args.optional_string("name"), Ok(None));
        assert_eq!(args.finish(), Ok(()));
    }
}
