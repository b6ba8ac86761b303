//! Columns as wide as their widest cell.

use std::io::{self, Write};

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// A table with a heading line.
pub struct Table<const N: usize> {
    sides: [Side; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(columns: [(&str, Side); N]) -> Table<N> {
        Table {
            sides: columns.map(|(_, side)| side),
            rows: vec![columns.map(|(title, _)| title.to_owned())],
        }
    }

    pub fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        });
        for row in &self.rows {
            let cells = (0..N).map(|n| match self.sides[n] {
                Side::Left => format!("{:<1$}", row[n], widths[n]),
                Side::Right => format!("{:>1$}", row[n], widths[n]),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_at_the_right_and_lines_end_without_spaces() {
        let mut table = Table::new([("NAME", Side::Left), ("N", Side::Right), ("X", Side::Left)]);
        table.push(["/ä".to_owned(), "100".to_owned(), String::new()]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME    N  X\n/ä    100\n");
    }
}
