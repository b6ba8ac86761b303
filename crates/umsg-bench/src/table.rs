//! Prints rows as a table for people, with notes below the table.

use crate::row::{Row, Verdict};

/// Prints the heading, the table, and the notes that its rows refer to by letters.
pub fn print(heading: &str, rows: &[Row]) {
    println!("\n{heading}\n");
    let extras = extra_columns(rows);
    let notes = distinct_notes(rows);
    let mut lines = vec![header(&extras)];
    lines.extend(rows.iter().map(|row| line(row, &extras, &notes)));
    print_aligned(&lines);
    println!();
    for (index, note) in notes.iter().enumerate() {
        println!("  [{}] {note}", letter(index));
    }
}

/// Returns the further columns of all rows, in order of appearance.
fn extra_columns(rows: &[Row]) -> Vec<&str> {
    let mut columns = Vec::new();
    for (key, _) in rows.iter().flat_map(|row| row.columns.iter()) {
        if !columns.contains(&key) {
            columns.push(key);
        }
    }
    columns
}

fn distinct_notes(rows: &[Row]) -> Vec<&str> {
    let mut notes: Vec<&str> = Vec::new();
    for note in rows.iter().flat_map(remarks) {
        if !notes.contains(&note.as_str()) {
            notes.push(note);
        }
    }
    notes
}

/// Returns the notes below the table. If the figures are doubtful, the reason comes first.
fn remarks(row: &Row) -> impl Iterator<Item = &String> {
    row.doubts.iter().chain(&row.notes)
}

fn header(extras: &[&str]) -> Vec<String> {
    let mut cells: Vec<String> = ["", "unit", "umsg", "kernel", "ratio"]
        .map(Into::into)
        .into();
    cells.extend(extras.iter().map(|key| key.replace('_', " ")));
    cells.extend(["goal".to_owned(), "notes".to_owned()]);
    cells
}

fn line(row: &Row, extras: &[&str], notes: &[&str]) -> Vec<String> {
    let mut cells = vec![
        match row.resolved {
            true => row.row.clone(),
            false => format!("{} (not resolved)", row.row),
        },
        row.unit.clone(),
        number(row.umsg),
        number(row.kernel),
        number(row.ratio),
    ];
    for key in extras {
        let has = row.columns.iter().any(|(name, _)| name == *key);
        cells.push(match has {
            true => number(row.columns.get(key)),
            false => String::new(),
        });
    }
    cells.push(match &row.goal {
        Some(goal) if goal.verdict == Verdict::Missed => format!("MISSED: {}", goal.text),
        Some(goal) => format!("{}: {}", goal.verdict.name(), goal.text),
        None => String::new(),
    });
    let marks = notes
        .iter()
        .enumerate()
        .filter(|(_, note)| remarks(row).any(|own| own == *note))
        .map(|(index, _)| letter(index));
    cells.push(marks.collect::<Vec<_>>().join(","));
    cells
}

/// Returns the mark of a note: a, b ... z, aa, ab ...
fn letter(index: usize) -> String {
    let last = char::from(b'a' + (index % 26) as u8);
    match index / 26 {
        0 => last.to_string(),
        more => letter(more - 1) + &last.to_string(),
    }
}

/// Returns a number with about three significant digits, and commas between thousands.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() < 10.0 => format!("{value:.2}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.1}"),
        Some(value) => thousands(value.round() as i64),
    }
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if value < 0 {
        format!("-{grouped}")
    } else {
        grouped
    }
}

/// Prints lines. The first two and the last two columns are aligned to the left, all others to the right.
fn print_aligned(lines: &[Vec<String>]) {
    let columns = lines[0].len();
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let left = column < 2 || column + 2 >= columns;
            text += &if left {
                format!("{cell:<width$}  ")
            } else {
                format!("{cell:>width$}  ")
            };
        }
        println!("{}", text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_three_digits_or_all_of_a_large_one() {
        let shown = [0.5, 9.994, 45.24, 999.4, 1_234_567.0].map(|value| number(Some(value)));
        assert_eq!(shown, ["0.50", "9.99", "45.2", "999", "1,234,567"]);
    }

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!([letter(0), letter(25), letter(26)], ["a", "z", "aa"]);
    }
}
