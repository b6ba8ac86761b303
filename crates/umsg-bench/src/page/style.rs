//! How the page looks.

pub const CSS: &str = include_str!("style.css");
