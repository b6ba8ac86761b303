//! Checks that the installed files fit together: symbols, versions, header, manual, pkg-config. Also checks that programs can be linked with the
//! static library.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use support::{
    Build, Compile, compile, finish, is_installed, namespace, pkg_config, prefix, skip, source,
    succeed, text, workshop,
};

type Names = BTreeSet<String>;

fn shared_library() -> PathBuf {
    prefix().join("lib/libumsg.so")
}

/// Returns the functions that the library exports, each with `@@` and its version.
fn exported() -> Names {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only"]).arg(shared_library());
    succeed(&mut nm)
        .lines()
        .filter_map(|line| line.split_once(" T "))
        .map(|(_, name)| name.to_owned())
        .collect()
}

fn names() -> Names {
    let exported = exported();
    let name = |symbol: &String| symbol.split('@').next().unwrap().to_owned();
    exported.iter().map(name).collect()
}

/// Returns the words of a C text that may be names of the library's functions.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("umsg_"))
}

/// Returns the functions that the header declares. Only declarations begin with a letter at the start of a line; the lines of comments begin with
/// another character.
fn declared() -> Names {
    let header = fs::read_to_string(prefix().join("include/umsg.h")).unwrap();
    header
        .lines()
        .filter(|line| line.starts_with(char::is_alphabetic) && line.contains('('))
        .filter_map(|line| words(line.split('(').next().unwrap()).last())
        .map(str::to_owned)
        .collect()
}

/// Fails if the compiler warns about a file that only includes a header.
fn stands_alone(header: &str, language: &str, standard: &str) {
    let file = workshop().join(format!("alone-{language}-{standard}"));
    fs::write(&file, format!("#include <{header}>\nextern int nothing;\n")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .args(["-x", language])
        .arg(format!("-std={standard}"))
        .arg("-I")
        .arg(prefix().join("include"))
        .arg(file);
    succeed(&mut cc);
}

fn pages() -> Vec<PathBuf> {
    let pages = prefix().join("share/man/man3").read_dir().unwrap();
    pages.map(|page| page.unwrap().path()).collect()
}

#[test]
fn only_functions_of_umsg_are_exported_and_each_has_its_version() {
    let exported = exported();
    assert!(exported.len() >= 16, "{exported:?}");
    for symbol in &exported {
        assert!(
            symbol.starts_with("umsg_") && symbol.ends_with("@@UMSG_0.1"),
            "{symbol}"
        );
    }
}

#[test]
fn the_version_map_names_what_is_exported() {
    let map = include_str!("../umsg.map");
    let mapped: Names = words(map).map(str::to_owned).collect();
    assert_eq!(mapped, names());
}

/// The list is also the symbols file of Debian's package libumsg0: a symbol, its version, and the first release with the symbol. A line of a release
/// must stay, because programs may use the symbol.
#[test]
fn the_list_of_symbols_is_what_is_exported() {
    let list = include_str!("../../../packaging/debian/libumsg0.symbols");
    let (first, symbols) = list.split_once('\n').unwrap();
    assert_eq!(first, "libumsg.so.0 libumsg0 #MINVER#");
    let mut listed = Names::new();
    for line in symbols.lines() {
        let (symbol, release) = line.trim_start().split_once(' ').unwrap();
        let (name, version) = symbol.split_once('@').unwrap();
        // The name of a release begins with the number of its symbol version: release 0.1.0 added the symbol version UMSG_0.1.
        assert!(
            release.starts_with(version.trim_start_matches("UMSG_")),
            "{line}"
        );
        // The line `UMSG_0.1@UMSG_0.1` lists a symbol version itself, and not a function.
        if name != version {
            listed.insert(format!("{name}@@{version}"));
        }
    }
    assert_eq!(listed, exported());
}

#[test]
fn the_header_declares_what_is_exported() {
    assert_eq!(declared(), names());
}

#[test]
fn headers_stand_alone() {
    for standard in ["c99", "c11", "gnu17"] {
        stands_alone("umsg.h", "c", standard);
    }
    stands_alone("umsg/mqueue.h", "c", "gnu11");
    stands_alone("umsg/msg.h", "c", "gnu11");
    stands_alone("umsg/ring.h", "c", "c99");
    if is_installed("c++") {
        for standard in ["c++98", "c++20"] {
            stands_alone("umsg.h", "c++", standard);
        }
        stands_alone("umsg/mqueue.h", "c++", "c++11");
        stands_alone("umsg/msg.h", "c++", "gnu++11");
        stands_alone("umsg/ring.h", "c++", "c++98");
    }
}

#[test]
fn what_is_exported_has_a_manual_page() {
    let titles: Names = pages()
        .iter()
        .map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(titles, names());
}

#[test]
fn manual_pages_refer_to_pages_that_there_are() {
    let names = names();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let references = text.lines().filter_map(|line| line.strip_prefix(".BR "));
        for reference in references.filter(|reference| reference.contains("(3)")) {
            let name = reference.split(' ').next().unwrap();
            let is_ours = !name.starts_with("umsg") || names.contains(name);
            assert!(is_ours, "{}: {reference}", page.display());
        }
    }
}

#[test]
fn man_has_nothing_to_complain_of() {
    if !is_installed("man") {
        return skip("man");
    }
    for page in pages() {
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
            .arg(&page)
            .env("LC_ALL", "C.UTF-8")
            .env("MANROFFSEQ", "")
            .env("MANWIDTH", "80");
        let output = finish(&mut man);
        assert!(output.status.success(), "{man:?}: {}", text(&output));
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(complaints, "", "{}", page.display());
    }
}

#[test]
fn mandoc_has_nothing_to_complain_of() {
    if !is_installed("mandoc") {
        // This test does not report itself as skipped, so that a CI machine without mandoc passes. The test with man finds the important faults of
        // the pages.
        return;
    }
    let mut mandoc = Command::new("mandoc");
    mandoc.args(["-Tlint", "-Wwarning"]).args(pages());
    let output = finish(&mut mandoc);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_library_has_a_name_that_programs_are_linked_to() {
    let mut readelf = Command::new("readelf");
    readelf.arg("-d").arg(shared_library());
    let dynamic = succeed(&mut readelf);
    assert!(
        dynamic.contains("Library soname: [libumsg.so.0]"),
        "{dynamic}"
    );
    let real = fs::canonicalize(shared_library()).unwrap();
    let expected = concat!("libumsg.so.", env!("CARGO_PKG_VERSION"));
    assert_eq!(real.file_name().unwrap(), expected);
    assert_eq!(
        fs::canonicalize(prefix().join("lib/libumsg.so.0")).unwrap(),
        real
    );
}

#[test]
fn the_library_is_not_unloaded_under_threads_that_used_it() {
    let mut readelf = Command::new("readelf");
    let dynamic = succeed(readelf.arg("-d").arg(shared_library()));
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn pkg_config_knows_the_version_and_the_place() {
    let Some(version) = pkg_config(&["--modversion", "umsg"]) else {
        return skip("pkg-config");
    };
    assert_eq!(version, [env!("CARGO_PKG_VERSION")]);
    let flags = pkg_config(&["--cflags", "--libs", "umsg"]).unwrap();
    let include = fs::canonicalize(flags[0].strip_prefix("-I").unwrap()).unwrap();
    let expected = fs::canonicalize(prefix()).unwrap().join("include");
    assert_eq!(include, expected);
    assert_eq!(flags.last().unwrap(), "-lumsg");
}

#[test]
fn a_program_can_have_the_library_inside() {
    let program = workshop().join("static");
    let system = pkg_config(&["--static", "--libs-only-l", "umsg"]).unwrap_or_default();
    let program = Compile::new(&source("look.c"), program)
        .args([
            "-std=c11".into(),
            format!("-I{}", prefix().join("include").display()),
        ])
        .args([prefix().join("lib/libumsg.a")])
        .args(system.iter().filter(|library| *library != "-lumsg"))
        .run();
    let mut readelf = Command::new("readelf");
    assert!(!succeed(readelf.arg("-d").arg(&program)).contains("libumsg"));
    let namespace = namespace();
    succeed(&mut namespace.command(program));
}

#[test]
fn a_program_can_be_static_with_the_flags_of_pkg_config() {
    let Some(flags) = pkg_config(&["--static", "--cflags", "--libs", "umsg"]) else {
        return skip("pkg-config");
    };
    let program = Compile::new(&source("look.c"), workshop().join("all-static"))
        .args(["-std=c11", "-static"].map(String::from))
        .args(flags)
        .run();
    let mut readelf = Command::new("readelf");
    let dynamic = succeed(readelf.arg("-dl").arg(&program));
    assert!(
        !dynamic.contains("NEEDED") && !dynamic.contains("INTERP"),
        "{dynamic}"
    );
    let namespace = namespace();
    succeed(&mut namespace.command(program));
}

#[test]
fn a_program_needs_nothing_but_the_library() {
    let program = compile(&Build {
        source: "look.c",
        output: "look-needs",
        options: &["-std=c11"],
    });
    let mut readelf = Command::new("readelf");
    let needed = succeed(readelf.args(["-d", "-V"]).arg(program));
    assert!(
        needed.contains("[libumsg.so.0]") && needed.contains("UMSG_0.1"),
        "{needed}"
    );
}
