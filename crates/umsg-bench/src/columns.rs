//! Named figures in a fixed order: the additional columns of a row.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::row::rounded;

/// Names and figures. In JSON, the columns are an object whose fields keep their order.
#[derive(Clone, Debug, Default)]
pub struct Columns(Vec<(String, Option<f64>)>);

impl Columns {
    pub fn push(&mut self, key: impl Into<String>, value: Option<f64>) {
        self.0.push((key.into(), value));
    }

    /// Returns a figure, or None if the figure was not measured or the column does not exist.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.iter()
            .find(|&(name, _)| name == key)
            .and_then(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<f64>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl Serialize for Columns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, value)| (name, value.map(rounded))))
    }
}

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Columns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of figures")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
        let mut columns = Columns::default();
        while let Some((key, value)) = map.next_entry::<String, Option<f64>>()? {
            columns.push(key, value);
        }
        Ok(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_order_through_json() {
        let mut columns = Columns::default();
        columns.push("z", Some(1.0));
        columns.push("a", None);
        let text = serde_json::to_string(&columns).unwrap();
        assert_eq!(text, r#"{"z":1.0,"a":null}"#);
        let again: Columns = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
        assert_eq!((again.get("z"), again.get("b")), (Some(1.0), None));
    }
}
