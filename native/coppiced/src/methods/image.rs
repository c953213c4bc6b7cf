//! `image.*`

use coppice_wire::Value;
use serde::{Deserialize, Serialize};

use crate::methods::{Answer, Context, Outcome};
use crate::values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attach {
    id: String,
    source: Source,
}

/// Exactly one of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    path: Option<String>,
    serial: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {}

#[derive(Serialize)]
struct Images {
    images: Vec<Image>,
}

#[derive(Serialize)]
struct Image {
    id: String,
}

pub async fn attach(context: &Context, params: Value) -> Outcome {
    let Attach { id, source } = values::params(params)?;
    context
        .host
        .images
        .attach(&id, source.path.as_deref(), source.serial.as_deref())
        .await?;
    Ok(Answer::empty())
}

pub fn list(context: &Context, params: Value) -> Outcome {
    values::params::<List>(params)?;
    let images = context.host.images.ids().into_iter().map(|id| Image { id }).collect();
    Answer::new(&Images { images })
}
