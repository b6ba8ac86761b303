//! Reads the headers of an ELF file: its machine, its dynamic linker and its C library. Source: elf(5).

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

/// The longest path of an interpreter (PATH_MAX).
const LONGEST_PATH: u64 = 4096;
/// The largest dynamic section that is read, in bytes. The sections of real libraries have about thirty entries of 16 bytes.
const LARGEST_DYNAMIC: u64 = 65_536;

/// The machine that a program or library was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The number of bits of an address.
    bits: u8,
    byte_order: Endianness,
    code: elf::Machine,
}

/// The C library that a dynamic linker belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    Glibc,
    Musl,
}

/// The facts that decide whether a library can be loaded into a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    pub machine: Machine,
    /// The dynamic linker; a static program has none.
    pub interpreter: Option<PathBuf>,
    /// The C library on which a library depends; None if it is not a known one.
    needed_libc: Option<Libc>,
    /// True if the file is position-independent and has a dynamic section.
    pub is_shared: bool,
}

impl Libc {
    /// The C library of this command.
    pub const OWN: Libc = match cfg!(target_env = "musl") {
        true => Libc::Musl,
        false => Libc::Glibc,
    };

    /// Returns the C library of a dynamic linker, from its file name. The names of all linkers of musl begin alike.
    fn of_linker(linker: &Path) -> Self {
        let name = linker.file_name().unwrap_or(OsStr::new(""));
        match name.as_bytes().starts_with(b"ld-musl-") {
            true => Libc::Musl,
            false => Libc::Glibc,
        }
    }

    /// Returns the C library that has this name as a dependency. musl has the name `libc.so`, and in Alpine `libc.musl-x86_64.so.1`.
    fn of_needed(name: &[u8]) -> Option<Self> {
        match name {
            b"libc.so.6" => Some(Libc::Glibc),
            b"libc.so" => Some(Libc::Musl),
            name if name.starts_with(b"libc.musl-") => Some(Libc::Musl),
            _ => None,
        }
    }
}

impl Elf {
    /// Returns the C library of a file. For a program, it is the C library of the dynamic linker; for a library, the C library among the
    /// dependencies.
    pub fn libc(&self) -> Option<Libc> {
        match &self.interpreter {
            Some(linker) => Some(Libc::of_linker(linker)),
            None => self.needed_libc,
        }
    }
}

pub fn is_elf(head: &[u8]) -> bool {
    head.starts_with(&elf::ELFMAG)
}

/// Reads the headers of a file. Returns None if the file is not an ELF file, or is truncated. The rest of the file is not read, because the file may
/// be huge.
pub fn read(path: &Path) -> io::Result<Option<Elf>> {
    let data = ReadCache::new(File::open(path)?);
    let elf = match FileKind::parse(&data) {
        Ok(FileKind::Elf32) => headers::<FileHeader32<Endianness>>(&data),
        Ok(FileKind::Elf64) => headers::<FileHeader64<Endianness>>(&data),
        _ => return Ok(None),
    };
    Ok(elf.ok())
}

fn headers<H: FileHeader<Endian = Endianness>>(data: &ReadCache<File>) -> object::Result<Elf> {
    let header = H::parse(data)?;
    let byte_order = header.endian()?;
    let mut interpreter = None;
    let mut is_dynamic = false;
    for program in header.program_headers(byte_order, data)? {
        is_dynamic |= program.p_type(byte_order) == elf::PT_DYNAMIC;
        let is_path = program.p_filesz(byte_order).into() <= LONGEST_PATH;
        if is_path && interpreter.is_none() {
            interpreter = program.interpreter(byte_order, data)?;
        }
    }
    Ok(Elf {
        machine: Machine {
            bits: if header.is_type_64() { 64 } else { 32 },
            byte_order,
            code: header.e_machine(byte_order),
        },
        interpreter: interpreter.map(|path| OsStr::from_bytes(path).into()),
        needed_libc: needed_libc(header, byte_order, data),
        is_shared: is_dynamic && header.e_type(byte_order) == elf::ET_DYN,
    })
}

/// Returns the C library among the dependencies of the file; None if the dynamic section is damaged.
fn needed_libc<H: FileHeader<Endian = Endianness>>(
    header: &H,
    byte_order: Endianness,
    data: &ReadCache<File>,
) -> Option<Libc> {
    let segments = header.program_headers(byte_order, data).ok()?;
    let dynamic = segments
        .iter()
        .find(|segment| segment.p_type(byte_order) == elf::PT_DYNAMIC)?;
    if dynamic.p_filesz(byte_order).into() > LARGEST_DYNAMIC {
        return None;
    }
    let entries = dynamic.dynamic(byte_order, data).ok()??;
    let address = entries
        .iter()
        .find(|entry| entry.d_tag(byte_order) == elf::DT_STRTAB)?
        .d_val(byte_order)
        .into();
    let strings = segments.iter().find_map(|segment| {
        let offset = address.checked_sub(segment.p_vaddr(byte_order).into())?;
        let is_here = segment.p_type(byte_order) == elf::PT_LOAD
            && offset < segment.p_filesz(byte_order).into();
        let (start, _) = segment.file_range(byte_order);
        is_here.then(|| start.checked_add(offset)).flatten()
    })?;
    entries
        .iter()
        .filter(|entry| entry.d_tag(byte_order) == elf::DT_NEEDED)
        .find_map(|entry| {
            let start = strings.checked_add(entry.d_val(byte_order).into())?;
            let end = start.checked_add(LONGEST_PATH)?;
            Libc::of_needed(data.read_bytes_at_until(start..end, 0).ok()?)
        })
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits;
        match (self.code, bits) {
            (elf::EM_386, _) => write!(f, "x86 ({bits}-bit)"),
            (elf::EM_ARM, _) => write!(f, "ARM ({bits}-bit)"),
            (elf::EM_X86_64, 64) => write!(f, "x86-64"),
            (elf::EM_X86_64, _) => write!(f, "x32"),
            (elf::EM_AARCH64, _) => write!(f, "aarch64"),
            (elf::EM_RISCV, _) => write!(f, "RISC-V ({bits}-bit)"),
            (code, _) => write!(f, "machine {} ({bits}-bit)", code.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of fields, which differ between 32-bit and 64-bit files.
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
    const MACHINE: u64 = 18;
    const PT_INTERP: u64 = 3;

    /// Returns the smallest file that has a header and one program header, for an address size and a byte order.
    fn file(wide: bool, big: bool, code: u16, linker: Option<&str>) -> Vec<u8> {
        let (layout, address, header, program) = match wide {
            true => (BITS_64, 8, 64, 56),
            false => (BITS_32, 4, 52, 32),
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
        put(layout.program_size, program, 2);
        put(layout.program_count, u64::from(linker.is_some()), 2);
        put(header, PT_INTERP, 4);
        put(header + layout.segment_offset, header + 64, address);
        let length = linker.map_or(0, |linker| linker.len() as u64 + 1);
        put(header + layout.segment_length, length, address);
        bytes[..4].copy_from_slice(&elf::ELFMAG);
        bytes[4..7].copy_from_slice(&[1 + u8::from(wide), 1 + u8::from(big), 1]);
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
            assert_eq!(elf.machine.code, elf::EM_ARM);
            assert_eq!(elf.machine.byte_order == Endianness::Big, big);
            assert_eq!(elf.machine.bits, if wide { 64 } else { 32 });
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
    fn a_segment_of_a_terabyte_is_not_read() {
        let mut bytes = file(true, false, 62, Some("/lib/ld.so"));
        let length = 64 + BITS_64.segment_length as usize;
        bytes[length..length + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        // A sparse file uses no disk space.
        file.as_file().set_len(1 << 41).unwrap();
        let elf = read(file.path()).unwrap().unwrap();
        assert_eq!(elf.interpreter, None);
    }

    #[test]
    fn the_c_library_of_a_program_and_of_a_library_is_known() {
        let program = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        // The program's dependencies and its dynamic linker agree. A static program has neither.
        assert_eq!(program.needed_libc, program.libc());
        assert!(program.libc().is_none_or(|libc| libc == Libc::OWN));
        for (name, libc) in [
            ("libc.so.6", Some(Libc::Glibc)),
            ("libc.so", Some(Libc::Musl)),
            ("libc.musl-aarch64.so.1", Some(Libc::Musl)),
            ("libcrypt.so.1", None),
        ] {
            assert_eq!(Libc::of_needed(name.as_bytes()), libc, "{name}");
        }
        let linkers = [
            ("/lib64/ld-linux-x86-64.so.2", Libc::Glibc),
            ("/lib/ld-musl-x86_64.so.1", Libc::Musl),
        ];
        for (linker, libc) in linkers {
            assert_eq!(Libc::of_linker(Path::new(linker)), libc);
        }
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
