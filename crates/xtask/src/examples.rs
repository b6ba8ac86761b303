//! `cargo xtask examples`: checks that each public function of the library has an example in its documentation.
//!
//! The sources are parsed. A function needs an example if it is `pub`, in an item that is not hidden from the documentation, and outside of tests.

use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, ImplItemFn, ItemFn, ItemMod, Visibility};

use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;

/// Files and folders that need no examples. Their functions have the form of C's calls, of which the module shows one example, or are public only for
/// other crates of the workspace.
const INTERNAL: [&str; 8] = [
    "kernel_files",
    "posix/known_file.rs",
    "posix/sigevent.rs",
    "signals.rs",
    "sysv/raw.rs",
    "sysv/raw/control.rs",
    "sysv/raw/kept.rs",
    "sysv/raw/table.rs",
];

/// Prints the functions without an example. Fails if there is such a function.
pub fn run(workspace: &Workspace) -> Result<()> {
    let source = workspace.root.join("crates/umsg/src");
    let (mut count, mut lacking) = (0, 0);
    for file in files(&source)? {
        let name = file.strip_prefix(&source).unwrap_or(&file);
        if INTERNAL.iter().any(|internal| name.starts_with(internal)) {
            continue;
        }
        let text = fs::read_to_string(&file).context(file.display())?;
        let functions = Functions::of(&text).context(file.display())?;
        count += functions.count;
        lacking += functions.without_example.len();
        for function in functions.without_example {
            println!("crates/umsg/src/{}: {function}", name.display());
        }
    }
    println!("{count} public functions, {lacking} without an example");
    match lacking {
        0 => Ok(()),
        _ => Err(Failure::new(
            "write an example that runs for each of these functions",
        )),
    }
}

/// Returns all Rust files below a folder, except those of tests.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder)
        .context(folder.display())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .context(folder.display())?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files.extend(self::files(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !path.ends_with("tests.rs")
            && !path.ends_with("testing.rs")
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// The public functions of a file.
#[derive(Default)]
struct Functions {
    count: usize,
    without_example: Vec<String>,
}

impl Functions {
    fn of(text: &str) -> syn::Result<Functions> {
        let mut functions = Functions::default();
        functions.visit_file(&syn::parse_file(text)?);
        Ok(functions)
    }

    fn note(&mut self, visibility: &Visibility, attributes: &[Attribute], name: &syn::Ident) {
        if !matches!(visibility, Visibility::Public(_)) || has(attributes, "doc", "hidden") {
            return;
        }
        self.count += 1;
        if !has(attributes, "doc", "```") {
            self.without_example.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !has(&module.attrs, "cfg", "test") {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.note(&function.vis, &function.attrs, &function.sig.ident);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.note(&function.vis, &function.attrs, &function.sig.ident);
    }
}

/// Returns whether one of the attributes of this name contains a text.
fn has(attributes: &[Attribute], name: &str, text: &str) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident(name)
            && match &attribute.meta {
                syn::Meta::Path(_) => false,
                syn::Meta::List(list) => list.tokens.to_string().contains(text),
                syn::Meta::NameValue(pair) => match &pair.value {
                    syn::Expr::Lit(syn::ExprLit {
                        lit: syn::Lit::Str(value),
                        ..
                    }) => value.value().contains(text),
                    _ => false,
                },
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_function_without_an_example_is_found() {
        let text = "
            /// Does it.
            pub fn lacking() {}
            /// Does it.
            ///
            /// ```
            /// ```
            pub fn shown() {}
            #[doc(hidden)]
            pub fn hidden() {}
            fn private() {}
            #[cfg(test)]
            mod tests { pub fn helper() {} }
        ";
        let functions = Functions::of(text).unwrap();
        assert_eq!(functions.count, 2);
        assert_eq!(functions.without_example, ["lacking"]);
    }

    #[test]
    fn each_heading_has_a_line_of_its_own() {
        const HEADINGS: [&str; 6] = [
            "Safety",
            "Errors",
            "Panics",
            "Blocking",
            "Return value",
            "If the process dies",
        ];
        let workspace = Workspace::find().unwrap();
        for file in files(&workspace.root.join("crates")).unwrap() {
            let text = fs::read_to_string(&file).unwrap();
            for line in text.lines() {
                let comment = line.trim_start().trim_start_matches('/');
                let heading = comment.trim_start_matches('!').strip_prefix(" # ");
                let rest = heading
                    .and_then(|it| HEADINGS.iter().find_map(|heading| it.strip_prefix(heading)));
                let is_alone = rest.is_none_or(|rest| !rest.starts_with(' '));
                assert!(is_alone, "{}: {line}", file.display());
            }
        }
    }
}
