//! Numbers for people.

/// Returns a whole number with commas: 1,234,567.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(7.4), "7");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(grouped(65_528.0), "65,528");
        assert_eq!(grouped(1_234_567.8), "1,234,568");
    }
}
