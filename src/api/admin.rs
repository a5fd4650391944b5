//! `idempotency_configure` and `idempotency_register_resource`.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::prelude::*;
use serde_json::{Map, Value};

use super::call::check_length;
use super::given::no_control_character;
use crate::convert::args::{Jsonb, Name, Text};
use crate::convert::datum;
use crate::convert::returned::Returned;
use crate::error::Error;
use crate::store::resources;
use crate::store::settings::{self, ResourceType};

/// `sql/functions/settings.sql`.
#[pg_extern(sql = false)]
fn idempotency_configure<'a>(operation: Option<Text<'a>>, settings: Option<Jsonb>) -> Returned {
    configure(operation.as_ref(), settings.as_ref()).unwrap_or_else(|error| error.raise())
}

fn configure(operation: Option<&Text<'_>>, settings: Option<&Jsonb>) -> Result<Returned, Error> {
    let operation = Text::required("operation", operation)?;
    check_length("operation", operation)?;
    let patch = read_patch(settings.ok_or_else(|| Error::null("settings"))?)?;
    Ok(Returned(datum::jsonb(&settings::configure(operation, patch)?)))
}

fn read_patch(settings: &Jsonb) -> Result<Map<String, Value>, Error> {
    match settings.to_json("settings")? {
        Value::Object(patch) => Ok(patch),
        _ => Err(Error::argument(
            "settings must be an object",
            "They are another JSON value.".into(),
            "Pass an object such as {\"wait_ms\": 500}.",
        )),
    }
}

/// `sql/functions/settings.sql`.
#[pg_extern(sql = false)]
fn idempotency_register_resource<'a>(
    resource_type: Option<Text<'a>>,
    relation: Option<pg_sys::Oid>,
    id_column: Option<Name>,
) {
    register(resource_type.as_ref(), relation, id_column.as_ref())
        .unwrap_or_else(|error| error.raise());
}

fn register(
    resource_type: Option<&Text<'_>>,
    relation: Option<pg_sys::Oid>,
    id_column: Option<&Name>,
) -> Result<(), Error> {
    let resource_type = Text::required("resource_type", resource_type)?;
    check_length("resource_type", resource_type)?;
    no_control_character("resource_type", resource_type)?;
    let relation = relation.ok_or_else(|| Error::null("relation"))?;
    let id_column = id_column.ok_or_else(|| Error::null("id_column"))?;
    let id_name = id_column.to_utf8("id_column")?;
    // SAFETY: look-ups in the system cache.
    let (schema, name, number) = unsafe {
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        (schema, pg_sys::get_rel_name(relation), pg_sys::get_attnum(relation, id_column.as_ptr()))
    };
    if schema.is_null() || name.is_null() || number == 0 || !has_rows(relation) {
        return Err(Error::argument(
            "no such column",
            format!("The relation has no column \"{id_name}\"."),
            "Pass a table or a view, and its column that holds the id.",
        ));
    }
    let utf8 = |name| {
        // SAFETY: a zero-terminated name from the system cache.
        let name = datum::to_utf8(unsafe { CStr::from_ptr(name) }.to_bytes());
        name.map(str::to_owned).ok_or_else(|| Error::not_encoded("the name of relation"))
    };
    let owner = resources::owner_name(relation)
        .ok_or_else(|| Error::not_encoded("the name of the owner of relation"))?;
    let registered =
        ResourceType { schema: utf8(schema)?, relation: utf8(name)?, id_column: id_name, owner };
    settings::register(resource_type, &registered)
}

/// Whether a relation can be asked for rows; an index has columns too.
fn has_rows(relation: pg_sys::Oid) -> bool {
    // SAFETY: a look-up in the system cache.
    let kind = unsafe { pg_sys::get_rel_relkind(relation) } as u8;
    b"rvmfp".contains(&kind)
}
