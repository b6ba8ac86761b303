//! Pairs, as the command line declares them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use umsg_carry::kernel::sysv::Want;

use crate::address::{Address, Label};
use crate::failure::{Code, Failure, Result};

/// The direction of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the kernel's queue to umsg's.
    In,
    /// From umsg's queue to the kernel's.
    Out,
}

/// The value of --in, --out or --both: the kernel's queue, umsg's queue, and the types that are carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    kernel: Address,
    umsg: Address,
    want: Want,
}

/// A queue of the kernel and a queue of umsg, with the direction in which the relay carries messages between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub way: Way,
    pub kernel: Address,
    pub umsg: Address,
    pub want: Want,
}

/// Returns clap's parser of `QUEUE` or `KERNEL=UMSG`, each with or without `,type=N` or `,except=N` at its end.
pub fn declared() -> impl TypedValueParser<Value = Declared> {
    OsStringValueParser::new().try_map(|argument| parse(&argument))
}

fn parse(argument: &OsStr) -> Result<Declared, String> {
    let (queues, want) = selection(argument.as_bytes())?;
    let (kernel, umsg) = split(queues);
    if kernel.is_empty() || umsg.is_empty() {
        return Err("a name is missing: write the queue's name, or KERNEL=UMSG".to_owned());
    }
    let address = |bytes: &[u8]| Address::parse(OsStr::from_bytes(bytes).to_owned());
    let (kernel, umsg) = (address(kernel)?, address(umsg)?);
    match (&kernel, &umsg) {
        (Address::Posix(_), Address::Posix(_)) if want == Want::Any => {}
        (Address::Posix(_), Address::Posix(_)) => {
            return Err("a POSIX queue has no types; leave type= and except= out".to_owned());
        }
        (Address::SystemV(_), Address::SystemV(_)) => {}
        _ => {
            return Err(
                "one queue is a POSIX queue, the other one a System V queue; name two queues of one kind"
                    .to_owned(),
            );
        }
    }
    for end in [&kernel, &umsg] {
        if matches!(end, Address::SystemV(Label::Key(0, _))) {
            return Err(
                "key 0 (IPC_PRIVATE) finds no queue; name the queue by id:NUMBER".to_owned(),
            );
        }
    }
    Ok(Declared { kernel, umsg, want })
}

/// Splits the selection of types from the argument's end. Only the arguments of System V queues have a selection: the name of a POSIX queue may end
/// with the same characters as a selection.
fn selection(argument: &[u8]) -> Result<(&[u8], Want), String> {
    let Some(comma) = argument.iter().rposition(|byte| *byte == b',') else {
        return Ok((argument, Want::Any));
    };
    let is_sysv = Address::parse(OsStr::from_bytes(split(&argument[..comma]).0).to_owned())
        .is_ok_and(|address| matches!(address, Address::SystemV(_)));
    if !is_sysv {
        return Ok((argument, Want::Any));
    }
    let text = String::from_utf8_lossy(&argument[comma + 1..]).into_owned();
    let number = |digits: &str| crate::values::message_type(digits);
    let want = match text.split_once('=') {
        Some(("type", mtype)) => Want::Type(number(mtype)?),
        Some(("except", mtype)) => Want::Except(number(mtype)?),
        _ => return Err("after the comma, write type=N or except=N".to_owned()),
    };
    Ok((&argument[..comma], want))
}

/// Splits `KERNEL=UMSG` into the two names. A POSIX name has its only slash at its start, so `=/` separates two names.
fn split(queues: &[u8]) -> (&[u8], &[u8]) {
    let is_begin = |rest: &[u8]| {
        let begins: [&[u8]; 4] = [b"=/", b"=key:", b"=id:", b"=0x"];
        begins.iter().any(|begin| rest.starts_with(begin))
    };
    match (0..queues.len()).find(|at| is_begin(&queues[*at..])) {
        Some(at) => (&queues[..at], &queues[at + 1..]),
        None => (queues, queues),
    }
}

impl Declared {
    fn one_way(&self, way: Way, want: Want) -> Pair {
        Pair {
            way,
            kernel: self.kernel.clone(),
            umsg: self.umsg.clone(),
            want,
        }
    }
}

/// Returns the pairs of the options --in, --out and --both. Fails if there is no pair, if two pairs are the same, or if messages would circulate.
pub fn pairs(into: &[Declared], out: &[Declared], both: &[Declared]) -> Result<Vec<Pair>> {
    let wrong = |declared: &Declared, why: &str| {
        Failure::new(Code::Usage, format_args!("{}: {why}", declared.kernel))
    };
    let into = into.iter().map(|one| one.one_way(Way::In, one.want));
    let out = out.iter().map(|one| one.one_way(Way::Out, one.want));
    let mut pairs: Vec<Pair> = into.chain(out).collect();
    for one in both {
        let other = match (&one.kernel, one.want) {
            (Address::Posix(_), _) => {
                return Err(wrong(
                    one,
                    "a POSIX queue has no types, so messages would circulate; use one queue per direction, with --in and --out",
                ));
            }
            (_, Want::Any) => {
                return Err(wrong(
                    one,
                    "--both without a type would send messages in a circle; after the queue's name, write the type that goes to umsg's queue, as in key:0x1234,type=1",
                ));
            }
            (_, Want::Type(mtype)) => Want::Except(mtype),
            (_, Want::Except(mtype)) => Want::Type(mtype),
        };
        pairs.push(one.one_way(Way::In, one.want));
        pairs.push(one.one_way(Way::Out, other));
    }
    check(&pairs)?;
    Ok(pairs)
}

fn check(pairs: &[Pair]) -> Result {
    if pairs.is_empty() {
        let line = "no pair is named; use --in QUEUE, --out QUEUE or --both QUEUE,type=N";
        return Err(Failure::new(Code::Usage, line));
    }
    for (index, one) in pairs.iter().enumerate() {
        for other in &pairs[..index] {
            let shares_kernel = one.kernel.lossy() == other.kernel.lossy();
            let is_same = shares_kernel && one.umsg.lossy() == other.umsg.lossy();
            // For a System V queue of the kernel, a pair copies a message before it receives the message. So two pairs could deliver one message
            // twice.
            let copies_twice = shares_kernel
                && matches!(one.kernel, Address::SystemV(_))
                && (one.way, other.way) == (Way::In, Way::In);
            if !is_same && !copies_twice || are_disjoint(one.want, other.want) {
                continue;
            }
            let why = match one.way == other.way {
                true if is_same => "this pair is named twice",
                true => {
                    "another pair takes these messages from the kernel's queue, too, so they would be delivered twice; give the pairs different types"
                }
                false => {
                    "messages would circulate between these queues; use one queue per direction, or, for System V queues, give the pairs different types"
                }
            };
            return Err(Failure::new(Code::Usage, format_args!("{one}: {why}")));
        }
    }
    match circle(pairs) {
        None => Ok(()),
        Some(places) => {
            let line = format!(
                "{}: messages would circulate between these queues; leave one of the pairs out, or, for System V queues, give the pairs different types",
                places.join(" -> ")
            );
            Err(Failure::new(Code::Usage, line))
        }
    }
}

/// Returns the queues through which a message would circulate. The list begins and ends with the same queue. A queue that is named by its key in one
/// pair and by its identifier in another is treated as two queues.
fn circle(pairs: &[Pair]) -> Option<Vec<String>> {
    let mut types: Vec<i64> = pairs
        .iter()
        .filter_map(|pair| match pair.want {
            Want::Any => None,
            Want::Type(mtype) | Want::Except(mtype) => Some(mtype),
        })
        .collect();
    // One type that no pair names represents all types that no pair names.
    types.extend((1..).find(|mtype| !types.contains(mtype)));
    types.into_iter().find_map(|mtype| {
        let carried: Vec<&Pair> = pairs.iter().filter(|pair| pair.want.takes(mtype)).collect();
        let starts = carried.iter().map(|pair| pair.from());
        let mut starts = starts.map(|start| way(&carried, vec![start]));
        starts.find_map(|found| found)
    })
}

/// `places` is a path: the queues through which a message has passed so far. Returns a continuation of the path that ends at its first queue, if
/// there is one.
fn way(pairs: &[&Pair], places: Vec<String>) -> Option<Vec<String>> {
    let last = places.last()?;
    let mut next = pairs.iter().filter(|pair| pair.from() == *last);
    next.find_map(|pair| {
        let place = pair.to();
        let is_back = place == places[0];
        if !is_back && places.contains(&place) {
            return None;
        }
        let places = [places.as_slice(), &[place]].concat();
        if is_back {
            Some(places)
        } else {
            way(pairs, places)
        }
    })
}

fn are_disjoint(one: Want, other: Want) -> bool {
    match (one, other) {
        (Want::Type(one), Want::Type(other)) => one != other,
        (Want::Type(one), Want::Except(other)) | (Want::Except(other), Want::Type(one)) => {
            one == other
        }
        _ => false,
    }
}

impl Pair {
    /// Returns the name of the source queue.
    pub fn from(&self) -> String {
        match self.way {
            Way::In => format!("kernel:{}", self.kernel),
            Way::Out => self.umsg.to_string(),
        }
    }

    /// Returns the name of the destination queue.
    pub fn to(&self) -> String {
        match self.way {
            Way::In => self.umsg.to_string(),
            Way::Out => format!("kernel:{}", self.kernel),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from(), self.to())?;
        match self.want {
            Want::Any => Ok(()),
            Want::Type(mtype) => write!(f, " (type {mtype})"),
            Want::Except(mtype) => write!(f, " (all types but {mtype})"),
        }
    }
}

/// Returns clap's parser of a dead-letter queue.
pub fn dead_letter() -> impl TypedValueParser<Value = Address> {
    OsStringValueParser::new().try_map(|argument: OsString| match Address::parse(argument)? {
        Address::SystemV(Label::Key(0, _)) => {
            Err("key 0 (IPC_PRIVATE) finds no queue; name the queue by id:NUMBER".to_owned())
        }
        address => Ok(address),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let one = parse(OsStr::new(text))?;
        Ok(format!("{} {} {:?}", one.kernel, one.umsg, one.want))
    }

    #[test]
    fn a_pair_has_one_name_or_two_and_types() {
        for (text, meant) in [
            ("/a", "/a /a Any"),
            ("a", "/a /a Any"),
            ("/a=/b", "/a /b Any"),
            ("/a=b", "/a=b /a=b Any"),
            ("/a,type=1", "/a,type=1 /a,type=1 Any"),
            ("key:0x10", "key:0x10 key:0x10 Any"),
            ("key:16=id:5", "key:16 id:5 Any"),
            ("0x10,type=7", "key:0x10 key:0x10 Type(7)"),
            ("id:3=key:4,except=7", "id:3 key:4 Except(7)"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(meant), "{text}");
        }
        for wrong in [
            "=/a",
            "/a=key:5",
            "key:5=/a",
            "key:5,type=0",
            "key:5,type",
            "key:5,7",
            "key:0",
            "ring:/r",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn messages_never_go_round() {
        let one = |text: &str| [parse(OsStr::new(text)).unwrap()];
        let fails = |into: &[Declared], out: &[Declared], both: &[Declared]| {
            pairs(into, out, both).is_err()
        };
        assert!(fails(&[], &[], &[]));
        assert!(fails(&one("/a"), &one("/a"), &[]));
        assert!(fails(&one("/a=/b"), &one("/a=/b"), &[]));
        assert!(fails(&[], &[], &one("/a")));
        assert!(fails(&[], &[], &one("key:1")));
        assert!(fails(&one("key:1,type=1"), &one("key:1,except=2"), &[]));
        assert!(fails(&one("key:1"), &one("key:0x1"), &[]));
        let twice = |first: &str, second: &str| [one(first), one(second)].concat();
        assert!(fails(&twice("key:1=key:2", "key:1=key:3"), &[], &[]));
        assert!(!fails(
            &twice("key:1=key:2,type=1", "key:1=key:3,except=1"),
            &[],
            &[]
        ));
        assert!(!fails(&twice("/a=/b", "/a=/c"), &[], &[]));
        assert!(!fails(&one("/a=/b"), &one("/b=/a"), &[]));
        assert!(!fails(&one("/a"), &one("/b"), &[]));
        assert!(!fails(&one("key:1,type=1"), &one("key:1,type=2"), &[]));
        // Two pairs into umsg and two pairs out of umsg, through which a message circulates.
        let (into, out) = (twice("/a=/b", "/c=/d"), twice("/c=/b", "/a=/d"));
        let into_all = into.iter().map(|one| one.one_way(Way::In, one.want));
        let out_all = out.iter().map(|one| one.one_way(Way::Out, one.want));
        let all: Vec<Pair> = into_all.chain(out_all).collect();
        assert_eq!(
            circle(&all).unwrap().join(" -> "),
            "kernel:/a -> /b -> kernel:/c -> /d -> kernel:/a"
        );
        assert!(fails(&into, &out, &[]));
        assert!(!fails(&into, &one("/c=/b"), &[]));
        let (into, out) = (
            twice("key:1=key:2,type=1", "key:3=key:4,type=1"),
            |last: &str| twice("key:3=key:2,type=1", last),
        );
        assert!(fails(&into, &out("key:1=key:4,except=7"), &[]));
        assert!(!fails(&into, &out("key:1=key:4,except=1"), &[]));
        // Messages end in a queue that is the source of no pair, so nothing circulates.
        assert!(!fails(&twice("/a=/b", "/c=/b"), &one("/d=/b"), &[]));
        let both = pairs(&[], &[], &one("key:1,type=5")).unwrap();
        let meant: Vec<String> = both.iter().map(ToString::to_string).collect();
        assert_eq!(
            meant,
            [
                "kernel:key:1 -> key:1 (type 5)",
                "key:1 -> kernel:key:1 (all types but 5)"
            ]
        );
    }
}
