//! Prints tables whose columns are as wide as their widest cells.

use std::io::{self, Write};

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// A table with a heading line.
pub struct Table<const N: usize> {
    sides: [Side; N],
    /// The columns that are not printed.
    left_out: [bool; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(columns: [(&str, Side); N]) -> Table<N> {
        Table {
            sides: columns.map(|(_, side)| side),
            left_out: [false; N],
            rows: vec![columns.map(|(title, _)| title.to_owned())],
        }
    }

    pub fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Leaves out a column.
    pub fn leave_out(&mut self, column: usize) {
        self.left_out[column] = true;
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        });
        for row in &self.rows {
            let mut line = String::new();
            for n in (0..N).filter(|&n| !self.left_out[n]) {
                let padding = widths[n] - row[n].chars().count();
                let (before, behind) = match self.sides[n] {
                    Side::Left => (0, padding),
                    Side::Right => (padding, 0),
                };
                push_blanks(&mut line, before);
                line.push_str(&row[n]);
                // The last column is not padded, because a message may be long.
                if n + 1 < N {
                    push_blanks(&mut line, behind + GAP);
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Blanks between columns.
const GAP: usize = 2;

/// Appends blanks. `format!` can't do this, because its maximum width is 65,535.
fn push_blanks(line: &mut String, blanks: usize) {
    line.extend(std::iter::repeat_n(' ', blanks));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_may_be_as_long_as_a_message() {
        let long = "x".repeat(100_000);
        let mut table = Table::new([("A", Side::Left), ("B", Side::Right), ("C", Side::Left)]);
        table.push([long.clone(), String::new(), long.clone()]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        let blanks = |count| " ".repeat(count);
        let heading = format!("A{}  B  C\n", blanks(99_999));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("{heading}{long}     {long}\n")
        );
    }

    #[test]
    fn numbers_stand_at_the_right_and_lines_end_without_spaces() {
        let mut table = Table::new([("NAME", Side::Left), ("N", Side::Right), ("X", Side::Left)]);
        table.push(["/ä".to_owned(), "100".to_owned(), String::new()]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME    N  X\n/ä    100\n");
    }
}
