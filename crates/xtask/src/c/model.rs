//! The declarations of the C library, read from its Rust source: constants, structures, functions and their comments.

use std::fs;
use std::path::Path;

use syn::{Attribute, Fields, FnArg, Item, Pat, ReturnType, Visibility};

use super::ctype;
use super::doc::Doc;
use crate::failure::{Context as _, Failure, Result};

/// The files that declare something, in the order of the header.
const FILES: [&str; 46] = [
    "handle",
    "attributes",
    "open",
    "options",
    "send",
    "receive",
    "batch",
    "receive_batch",
    "close",
    "reservation",
    "lease",
    "dead_letter",
    "status",
    "peek",
    "snapshot",
    "notify",
    "waiting",
    "pollable",
    "msg/get",
    "msg/get_with",
    "msg/send",
    "msg/later",
    "msg/close",
    "msg/receive",
    "msg/control",
    "msg/batch",
    "msg/receive_batch",
    "msg/lease",
    "msg/peek",
    "msg/types",
    "msg/status",
    "msg/waiting",
    "msg/pollable",
    "ring/create",
    "ring/ends",
    "ring/unlink",
    "ring/send",
    "ring/send_batch",
    "ring/descriptor",
    "ring/receive",
    "ring/drain",
    "ring/waiting",
    "ring/control",
    "ring/status",
    "signals",
    "log",
];
/// The files whose items come last in the header.
const LAST_FILES: [&str; 2] = ["error", "version"];

/// Functions with variable arguments in C, and the index of the first variable argument.
const VARIADIC: [(&str, usize); 1] = [("umsg_mq_open", 2)];

/// All that the library declares.
pub struct Library {
    pub version: String,
    pub chapters: Vec<Chapter>,
}

/// The declarations of one source file.
pub struct Chapter {
    pub title: String,
    pub constants: Vec<Constant>,
    pub types: Vec<Type>,
    pub functions: Vec<Function>,
}

pub struct Constant {
    pub name: String,
    pub value: String,
    pub doc: Doc,
}

/// A structure, or another name of a type.
pub struct Type {
    pub name: String,
    pub doc: Doc,
    pub shape: Shape,
}

pub enum Shape {
    Structure(Vec<Member>),
    /// The whole declaration, without `typedef` and the semicolon.
    Alias(String),
}

pub struct Member {
    pub name: String,
    /// The type and the name, in the form of C.
    pub declaration: String,
    pub doc: Doc,
}

pub struct Function {
    pub name: String,
    pub doc: Doc,
    /// The returned type and the name of the function, in the form of C: the declaration up to the parenthesis.
    pub head: String,
    pub parameters: Vec<Parameter>,
    pub variadic: bool,
}

pub struct Parameter {
    pub name: String,
    pub declaration: String,
    /// The type of the library that the page of the function explains.
    pub explained: Option<String>,
}

impl Library {
    /// Reads `crates/umsg-c` of a checkout.
    pub fn read(root: &Path) -> Result<Library> {
        let source = root.join("crates/umsg-c/src");
        let mut chapters = Vec::new();
        for file in FILES.iter().chain(&LAST_FILES) {
            let path = source.join(file).with_extension("rs");
            let text = fs::read_to_string(&path).context(path.display())?;
            chapters.push(Chapter::parse(&text).context(path.display())?);
        }
        Ok(Library {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            chapters,
        })
    }

    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.chapters.iter().flat_map(|chapter| &chapter.functions)
    }

    /// Returns the type of this name.
    pub fn named(&self, name: &str) -> Option<&Type> {
        self.chapters
            .iter()
            .flat_map(|chapter| &chapter.types)
            .find(|one| one.name == name)
    }
}

impl Function {
    /// Returns whether a program that calls the function needs constants of `<sys/msg.h>`, such as IPC_NOWAIT or IPC_STAT.
    pub fn takes_flags_of_system_v(&self) -> bool {
        let named = |name| {
            self.parameters
                .iter()
                .any(|parameter| parameter.name == name)
        };
        named("msgflg") || self.name == "umsg_msgctl"
    }
}

impl Chapter {
    fn parse(text: &str) -> Result<Chapter> {
        let file = syn::parse_file(text).context("it does not parse")?;
        let mut chapter = Chapter {
            title: doc(&file.attrs).summary().to_owned(),
            constants: Vec::new(),
            types: Vec::new(),
            functions: Vec::new(),
        };
        for item in &file.items {
            chapter.add(item)?;
        }
        Ok(chapter)
    }

    fn add(&mut self, item: &Item) -> Result<()> {
        match item {
            Item::Const(item) if is_public(&item.vis) => {
                let syn::Expr::Lit(value) = &*item.expr else {
                    return Err(Failure::new(format!("{} is not a number", item.ident)));
                };
                let syn::Lit::Int(value) = &value.lit else {
                    return Err(Failure::new(format!("{} is not a number", item.ident)));
                };
                self.constants.push(Constant {
                    name: item.ident.to_string(),
                    value: value.base10_digits().to_owned(),
                    doc: doc(&item.attrs),
                });
            }
            Item::Type(item) if is_public(&item.vis) => self.types.push(Type {
                name: item.ident.to_string(),
                doc: doc(&item.attrs),
                shape: Shape::Alias(ctype::declare(&item.ty, &item.ident.to_string())?),
            }),
            Item::Struct(item) if is_public(&item.vis) => {
                let members = members(&item.fields)?;
                // A type without a public member is opaque, and declared where its name is used.
                if !members.is_empty() {
                    self.types.push(Type {
                        name: item.ident.to_string(),
                        doc: doc(&item.attrs),
                        shape: Shape::Structure(members),
                    });
                }
            }
            Item::Fn(item) if is_public(&item.vis) => {
                self.functions.push(function(&item.sig, &item.attrs)?);
            }
            _ => {}
        }
        Ok(())
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn members(fields: &Fields) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for field in fields.iter().filter(|field| is_public(&field.vis)) {
        let Some(name) = &field.ident else { continue };
        let name = name.to_string();
        members.push(Member {
            declaration: ctype::declare(&field.ty, &name)?,
            doc: doc(&field.attrs),
            name,
        });
    }
    Ok(members)
}

fn function(signature: &syn::Signature, attributes: &[Attribute]) -> Result<Function> {
    let name = signature.ident.to_string();
    let head = match &signature.output {
        ReturnType::Default => format!("void {name}"),
        ReturnType::Type(_, returned) => ctype::declare(returned, &name)?,
    };
    let mut parameters = Vec::new();
    for input in &signature.inputs {
        parameters.push(parameter(input)?);
    }
    let variadic = VARIADIC.iter().find(|(variadic, _)| *variadic == name);
    if let Some((_, first)) = variadic {
        parameters.truncate(*first);
    }
    Ok(Function {
        doc: doc(attributes),
        head,
        parameters,
        variadic: variadic.is_some(),
        name,
    })
}

fn parameter(input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(input) = input else {
        return Err(Failure::new("a function of C has no self"));
    };
    let Pat::Ident(pattern) = &*input.pat else {
        return Err(Failure::new("a parameter of C has a name"));
    };
    let name = pattern.ident.to_string();
    Ok(Parameter {
        declaration: ctype::declare(&input.ty, &name)?,
        explained: ctype::explained(&input.ty),
        name,
    })
}

fn doc(attributes: &[Attribute]) -> Doc {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(meta) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(text) = &meta.value else {
            return None;
        };
        match &text.lit {
            syn::Lit::Str(text) if meta.path.is_ident("doc") => {
                let text = text.value();
                Some(text.strip_prefix(' ').unwrap_or(&text).to_owned())
            }
            _ => None,
        }
    });
    Doc::new(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        //! Sending.

        /// A structure.
        #[repr(C)]
        pub struct umsg_thing {
            /// How many.
            pub count: u32,
            /// Zero.
            pub reserved: [u64; 3],
        }

        /// A handle.
        pub type umsg_handle = *mut umsg_hidden;

        /// Is told.
        pub type umsg_listener = Option<unsafe extern \"C\" fn(thing: *const umsg_thing, how: c_int) -> c_int>;

        /// So many.
        pub const UMSG_MANY: c_int = 7;
        const NOT_FOR_C: c_int = 8;

        /// Does it.
        ///
        /// # Errors
        /// None.
        #[unsafe(no_mangle)]
        pub unsafe extern \"C\" fn umsg_do(on: umsg_handle, thing: *const umsg_thing, text: *mut c_char) -> ssize_t {}
        pub(crate) fn not_for_c() {}
    ";

    #[test]
    fn what_is_public_is_declared() {
        let chapter = Chapter::parse(SOURCE).unwrap();
        assert_eq!(chapter.title, "Sending.");
        let [many] = &chapter.constants[..] else {
            panic!("one constant is public");
        };
        assert_eq!((&*many.name, &*many.value), ("UMSG_MANY", "7"));
        let [function] = &chapter.functions[..] else {
            panic!("one function is public");
        };
        assert_eq!(function.head, "ssize_t umsg_do");
        let declared: Vec<&str> = function
            .parameters
            .iter()
            .map(|parameter| &*parameter.declaration)
            .collect();
        let expected = [
            "umsg_handle on",
            "const struct umsg_thing *thing",
            "char *text",
        ];
        assert_eq!(declared, expected);
        assert_eq!(
            function.parameters[1].explained.as_deref(),
            Some("umsg_thing")
        );
    }

    #[test]
    fn a_structure_has_its_public_members_and_a_type_its_name() {
        let chapter = Chapter::parse(SOURCE).unwrap();
        let Shape::Structure(members) = &chapter.types[0].shape else {
            panic!("a structure comes first");
        };
        assert_eq!(members[0].declaration, "uint32_t count");
        assert_eq!(members[1].declaration, "uint64_t reserved[3]");
        let Shape::Alias(alias) = &chapter.types[1].shape else {
            panic!("another name of a type comes second");
        };
        assert_eq!(alias, "struct umsg_hidden *umsg_handle");
        let Shape::Alias(alias) = &chapter.types[2].shape else {
            panic!("a function's type comes third");
        };
        let expected = "int (*umsg_listener)(const struct umsg_thing *thing, int how)";
        assert_eq!(alias, expected);
    }

    #[test]
    fn a_type_that_c_does_not_have_is_refused() {
        assert!(Chapter::parse("pub fn umsg_do(text: &str) {}").is_err());
    }
}
