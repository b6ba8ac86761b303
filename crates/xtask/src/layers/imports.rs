//! The imports between the top-level modules of a crate: `use` items, and paths in types, expressions, patterns and macros.
//!
//! A path is an import if it begins with `crate`, `self` or `super`. A name that the crate root re-exports belongs to the module from which the name
//! comes. Names that macros put together are not found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, Meta, Token, UseTree};

use crate::failure::{Context as _, Result};

/// One place where a module names another module.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// The path of the importing file, below `src`.
    pub file: String,
    pub line: usize,
}

/// Reads a crate from its `src` folder: its top-level modules, and the imports between them.
pub fn read(source: &Path, tests: bool) -> Result<(BTreeSet<String>, Vec<Import>)> {
    let root = parse(&source.join("lib.rs"))?;
    let modules: Vec<&ItemMod> = root
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(module) if !is_for_tests(&module.attrs) => Some(module),
            _ => None,
        })
        .collect();
    let mut reader = Reader {
        source,
        tests,
        names: modules
            .iter()
            .map(|module| module.ident.to_string())
            .collect(),
        exports: exports(&root.items),
        module: Vec::new(),
        file: PathBuf::from("lib.rs"),
        imports: Vec::new(),
        failure: None,
    };
    for module in modules {
        reader.visit_item_mod(module);
    }
    match reader.failure {
        Some(failure) => Err(failure),
        None => Ok((reader.names, reader.imports)),
    }
}

fn parse(path: &Path) -> Result<syn::File> {
    let text = fs::read_to_string(path).context(path.display())?;
    syn::parse_file(&text).context(path.display())
}

/// Returns the names that the crate root re-exports, and the top-level modules from which they come.
fn exports(items: &[Item]) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for item in items {
        if let Item::Use(item) = item {
            for path in paths_of(&item.tree) {
                let path: Vec<String> = path
                    .iter()
                    .map(Ident::to_string)
                    .filter(|name| name != "crate" && name != "self")
                    .collect();
                if let [module, .., name] = &path[..] {
                    exports.insert(name.clone(), module.clone());
                }
            }
        }
    }
    exports
}

/// Returns the paths of a tree of `use`. A glob is an import of the module whose items it names.
fn paths_of(tree: &UseTree) -> Vec<Vec<Ident>> {
    let before = |name: &Ident, paths: Vec<Vec<Ident>>| {
        let longer = |mut path: Vec<Ident>| {
            path.insert(0, name.clone());
            path
        };
        paths.into_iter().map(longer).collect()
    };
    match tree {
        UseTree::Path(path) => before(&path.ident, paths_of(&path.tree)),
        UseTree::Name(name) => vec![vec![name.ident.clone()]],
        UseTree::Rename(name) => vec![vec![name.ident.clone()]],
        UseTree::Group(group) => group.items.iter().flat_map(paths_of).collect(),
        _ => vec![Vec::new()],
    }
}

/// Returns whether an item exists only in tests or under loom.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .filter_map(|attribute| attribute.parse_args().ok())
        .any(|condition| needs_tests(&condition))
}

/// Returns whether a condition holds in tests or under loom only.
fn needs_tests(condition: &Meta) -> bool {
    let parts = |list: &syn::MetaList| {
        let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        parts.map_or_else(|_| Vec::new(), |parts| parts.into_iter().collect())
    };
    match condition {
        Meta::Path(path) => ["test", "doctest", "loom"]
            .iter()
            .any(|name| path.is_ident(name)),
        Meta::List(list) if list.path.is_ident("all") => parts(list).iter().any(needs_tests),
        Meta::List(list) if list.path.is_ident("any") => {
            let parts = parts(list);
            !parts.is_empty() && parts.iter().all(needs_tests)
        }
        _ => false,
    }
}

/// Reads the modules of a crate, and records their imports.
struct Reader<'a> {
    source: &'a Path,
    tests: bool,
    names: BTreeSet<String>,
    exports: BTreeMap<String, String>,
    /// The path of the module that is read.
    module: Vec<String>,
    /// The file of that module, below `src`.
    file: PathBuf,
    imports: Vec<Import>,
    failure: Option<crate::failure::Failure>,
}

impl Reader<'_> {
    /// Reads the file of the module [`Self::module`].
    fn read_file(&mut self) -> Result<()> {
        let folder: PathBuf = self.module.iter().collect();
        let nested = folder.join("mod.rs");
        let file = if self.source.join(&nested).exists() {
            nested
        } else {
            folder.with_extension("rs")
        };
        let parsed = parse(&self.source.join(&file))?;
        let outer = std::mem::replace(&mut self.file, file);
        visit::visit_file(self, &parsed);
        self.file = outer;
        Ok(())
    }

    /// Notes a path, if it leads to another top-level module.
    fn note(&mut self, path: &[Ident]) {
        let Some(first) = path.first() else {
            return;
        };
        let Some(from) = self.module.first().cloned() else {
            return;
        };
        let name = self.absolute(path).into_iter().next();
        let Some(to) = name.and_then(|name| self.top_level(name)) else {
            return;
        };
        if to != from {
            let line = Span::start(&first.span()).line;
            let file = self.file.display().to_string();
            self.imports.push(Import {
                from,
                to,
                file,
                line,
            });
        }
    }

    /// Returns a path from the crate root; empty if the path leads out of the crate.
    fn absolute(&self, path: &[Ident]) -> Vec<String> {
        let mut at = match path.first() {
            Some(first) if *first == "crate" => Vec::new(),
            Some(first) if *first == "self" || *first == "super" => self.module.clone(),
            _ => return Vec::new(),
        };
        for name in path {
            if *name == "super" {
                at.pop();
            } else if *name != "crate" && *name != "self" {
                at.push(name.to_string());
            }
        }
        at
    }

    /// Returns the top-level module to which a name of the crate root belongs.
    fn top_level(&self, name: String) -> Option<String> {
        if self.names.contains(&name) {
            return Some(name);
        }
        let module = self.exports.get(&name)?;
        self.names.contains(module).then(|| module.clone())
    }

    /// Notes the paths in the tokens of a macro.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(first) if *first == "crate" || *first == "super" => {
                    let (path, end) = path_from(&tokens, at);
                    self.note_with_group(path, tokens.get(end));
                    // A group after the path is read, too, because it may contain further paths.
                    at = end;
                }
                TokenTree::Group(group) => {
                    self.note_tokens(group.stream());
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Records a path in a macro. If a group of braces follows `crate` or `super`, records a path for each name in the group.
    fn note_with_group(&mut self, path: Vec<Ident>, next: Option<&TokenTree>) {
        let is_open = path.iter().all(|name| *name == "crate" || *name == "super");
        match next {
            Some(TokenTree::Group(group)) if is_open && group.delimiter() == Delimiter::Brace => {
                for name in firsts(group.stream()) {
                    let mut path = path.clone();
                    path.push(name);
                    self.note(&path);
                }
            }
            _ => self.note(&path),
        }
    }
}

/// Returns the path that begins at a token, and the place after it.
fn path_from(tokens: &[TokenTree], mut at: usize) -> (Vec<Ident>, usize) {
    let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    let mut path = Vec::new();
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        path.push(name.clone());
        at += 1;
        if !(is_colon(at) && is_colon(at + 1)) {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// Returns the first name of each part of a list; commas separate the parts.
fn firsts(tokens: TokenStream) -> Vec<Ident> {
    let mut is_first = true;
    let mut names = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) if is_first => {
                names.push(name);
                is_first = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
            _ => {}
        }
    }
    names
}

/// Returns the attributes of an item. An attribute can make an item exist only in tests or under loom.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if self.tests || !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.module.push(module.ident.to_string());
        match &module.content {
            Some(_) => visit::visit_item_mod(self, module),
            None => {
                if let Err(failure) = self.read_file() {
                    self.failure.get_or_insert(failure);
                }
            }
        }
        self.module.pop();
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if self.tests || !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for path in paths_of(&item.tree) {
            self.note(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<Ident> = path
            .segments
            .iter()
            .map(|segment| segment.ident.clone())
            .collect();
        self.note(&names);
        visit::visit_path(self, path);
    }

    /// `pub(in crate::x)` and `pub(super)` are no imports.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.note_tokens(call.tokens.clone());
    }
}
