//! What an ELF file says before it runs: for which machine it is, and which dynamic linker loads it. Source: elf(5).

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"\x7fELF";
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const ET_DYN: u64 = 3;
/// Longer is no path.
const LONGEST_PATH: u64 = 4096;

/// What a program or library was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Bytes of an address.
    address: u8,
    big_endian: bool,
    code: u64,
}

/// What is of interest of an ELF file.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    pub machine: Machine,
    /// The dynamic linker; a static program has none.
    pub interpreter: Option<PathBuf>,
    /// Can be loaded into a program: it is position-independent and says what it needs and gives.
    pub is_shared: bool,
}

pub fn is_elf(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// None if the file is something else, or cut short.
pub fn read(path: &Path) -> io::Result<Option<Elf>> {
    let file = File::open(path)?;
    match Reader::new(&file).and_then(|reader| reader.elf()) {
        Ok(elf) => Ok(Some(elf)),
        Err(error) if is_nonsense(error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file's own fault: it ends early, is no ELF file, or has offsets that no file has.
fn is_nonsense(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::UnexpectedEof | Kind::InvalidData | Kind::InvalidInput
    )
}

/// Offsets of fields, which the two classes have at different places.
struct Layout {
    programs: u64,
    program_size: u64,
    program_count: u64,
    segment_offset: u64,
    segment_length: u64,
}

const BITS_32: Layout = Layout {
    programs: 28,
    program_size: 42,
    program_count: 44,
    segment_offset: 4,
    segment_length: 16,
};
const BITS_64: Layout = Layout {
    programs: 32,
    program_size: 54,
    program_count: 56,
    segment_offset: 8,
    segment_length: 32,
};
const TYPE: u64 = 16;
const MACHINE: u64 = 18;

struct Reader<'a> {
    file: &'a File,
    layout: Layout,
    address: u8,
    big_endian: bool,
}

impl Reader<'_> {
    fn new(file: &File) -> io::Result<Reader<'_>> {
        let mut ident = [0; 6];
        file.read_exact_at(&mut ident, 0)?;
        let (layout, address) = match (is_elf(&ident), ident[4]) {
            (true, 1) => (BITS_32, 4),
            (true, 2) => (BITS_64, 8),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Reader {
            file,
            layout,
            address,
            big_endian: ident[5] == 2,
        })
    }

    fn elf(&self) -> io::Result<Elf> {
        let machine = Machine {
            address: self.address,
            big_endian: self.big_endian,
            code: self.half(MACHINE)?,
        };
        let interpreter = self
            .segment(PT_INTERP)?
            .map(|header| self.path(header))
            .transpose()?;
        let is_dynamic = self.segment(PT_DYNAMIC)?.is_some();
        Ok(Elf {
            machine,
            interpreter,
            is_shared: is_dynamic && self.half(TYPE)? == ET_DYN,
        })
    }

    /// Where the first program header of a kind is.
    fn segment(&self, kind: u64) -> io::Result<Option<u64>> {
        let start = self.word(self.layout.programs)?;
        let size = self.half(self.layout.program_size)?;
        for n in 0..self.half(self.layout.program_count)? {
            let header = plus(start, n * size)?;
            if self.number(header, 4)? == kind {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// The path in the segment that a program header describes, up to its NUL.
    fn path(&self, header: u64) -> io::Result<PathBuf> {
        let at = self.word(plus(header, self.layout.segment_offset)?)?;
        let length = self.word(plus(header, self.layout.segment_length)?)?;
        let mut bytes = vec![0; length.min(LONGEST_PATH) as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let path = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(OsStr::from_bytes(path).into())
    }

    fn half(&self, at: u64) -> io::Result<u64> {
        self.number(at, 2)
    }

    /// A number as long as an address.
    fn word(&self, at: u64) -> io::Result<u64> {
        self.number(at, usize::from(self.address))
    }

    fn number(&self, at: u64, length: usize) -> io::Result<u64> {
        let mut buffer = [0; 8];
        let bytes = &mut buffer[..length];
        self.file.read_exact_at(bytes, at)?;
        if self.big_endian {
            bytes.reverse();
        }
        Ok(u64::from_le_bytes(buffer))
    }
}

/// Offsets come from the file and may be anything.
fn plus(one: u64, other: u64) -> io::Result<u64> {
    one.checked_add(other)
        .ok_or(io::ErrorKind::InvalidData.into())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u32::from(self.address) * 8;
        match (self.code, self.address) {
            (3, _) => write!(f, "x86 ({bits}-bit)"),
            (40, _) => write!(f, "ARM ({bits}-bit)"),
            (62, 8) => write!(f, "x86-64"),
            (62, _) => write!(f, "x32"),
            (183, _) => write!(f, "aarch64"),
            (243, _) => write!(f, "RISC-V ({bits}-bit)"),
            (code, _) => write!(f, "machine {code} ({bits}-bit)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest file with a header and one program header, in either class and order of bytes.
    fn file(wide: bool, big: bool, code: u16, linker: Option<&str>) -> Vec<u8> {
        let (layout, address, header) = match wide {
            true => (BITS_64, 8, 64),
            false => (BITS_32, 4, 52),
        };
        let mut bytes = vec![0; header + 64];
        let mut put = |at: u64, value: u64, length: usize| {
            let mut number = value.to_le_bytes()[..length].to_vec();
            if big {
                number.reverse();
            }
            bytes[at as usize..][..length].copy_from_slice(&number);
        };
        let header = header as u64;
        put(MACHINE, u64::from(code), 2);
        put(layout.programs, header, address);
        put(layout.program_size, 56, 2);
        put(layout.program_count, u64::from(linker.is_some()), 2);
        put(header, PT_INTERP, 4);
        put(header + layout.segment_offset, header + 64, address);
        let length = linker.map_or(0, |linker| linker.len() as u64 + 1);
        put(header + layout.segment_length, length, address);
        bytes[..4].copy_from_slice(MAGIC);
        (bytes[4], bytes[5]) = (1 + u8::from(wide), 1 + u8::from(big));
        bytes.extend(
            linker
                .into_iter()
                .flat_map(|linker| linker.bytes().chain([0])),
        );
        bytes
    }

    fn read_bytes(bytes: &[u8]) -> io::Result<Option<Elf>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read(file.path())
    }

    #[test]
    fn both_classes_and_both_orders_of_bytes_are_read() {
        for (wide, big) in [(true, false), (true, true), (false, false), (false, true)] {
            let elf = read_bytes(&file(wide, big, 40, Some("/lib/ld.so")))
                .unwrap()
                .unwrap();
            assert_eq!(elf.interpreter, Some(PathBuf::from("/lib/ld.so")));
            assert_eq!((elf.machine.code, elf.machine.big_endian), (40, big));
            assert_eq!(elf.machine.address, if wide { 8 } else { 4 });
            let elf = read_bytes(&file(wide, big, 40, None)).unwrap().unwrap();
            assert_eq!(elf.interpreter, None);
        }
    }

    #[test]
    fn a_file_cut_short_anywhere_is_no_elf_file_and_no_crash() {
        let whole = file(true, false, 62, Some("/lib/ld.so"));
        for length in 0..whole.len() {
            assert_eq!(read_bytes(&whole[..length]).unwrap(), None, "{length}");
        }
    }

    #[test]
    fn offsets_beyond_the_file_are_no_crash() {
        let mut bytes = file(true, false, 62, Some("/lib/ld.so"));
        bytes[32..40].fill(0xFF);
        assert_eq!(read_bytes(&bytes).unwrap(), None);
    }

    #[test]
    fn this_program_is_for_this_machine() {
        let elf = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        let name = if cfg!(target_arch = "x86_64") {
            "x86-64"
        } else {
            "aarch64"
        };
        assert_eq!(elf.machine.to_string(), name);
    }
}
