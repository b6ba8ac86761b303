//! Writes JSON with a line for each field and a line for each element of a list, so that versions of a file can be compared line by line.

use serde::Serialize;

use crate::failure::Failure;

/// A JSON object that is being written.
#[derive(Default)]
pub struct Lines(Vec<String>);

impl Lines {
    /// Adds a field on a separate line.
    pub fn field(&mut self, key: &str, value: &impl Serialize) -> Result<(), Failure> {
        self.0.push(format!("{}: {}", json(&key)?, json(value)?));
        Ok(())
    }

    /// Adds a list, with one line for each element.
    pub fn list<T: Serialize>(&mut self, key: &str, elements: &[T]) -> Result<(), Failure> {
        if elements.is_empty() {
            return self.field(key, &elements);
        }
        let lines = elements.iter().map(json).collect::<Result<Vec<_>, _>>()?;
        self.0
            .push(format!("{}: [\n{}\n]", json(&key)?, lines.join(",\n")));
        Ok(())
    }

    /// Returns the whole document.
    pub fn text(self) -> String {
        format!("{{\n{}\n}}\n", self.0.join(",\n"))
    }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::new(format!("JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_of_a_list_has_a_line_of_its_own() {
        let mut lines = Lines::default();
        lines.list("a", &[[1, 2], [3, 4]]).unwrap();
        lines.list::<u32>("b", &[]).unwrap();
        lines.field("c", &"d").unwrap();
        let text = lines.text();
        assert_eq!(
            text,
            "{\n\"a\": [\n[1,2],\n[3,4]\n],\n\"b\": [],\n\"c\": \"d\"\n}\n"
        );
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
