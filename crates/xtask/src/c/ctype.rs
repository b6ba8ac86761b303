//! The C forms of Rust types.

use syn::{Expr, GenericArgument, Lit, PathArguments, ReturnType, Type};

use crate::failure::{Failure, Result};

/// Types that have another name in C.
const NAMES: [(&str, &str); 18] = [
    ("c_char", "char"),
    ("c_int", "int"),
    ("c_uint", "unsigned int"),
    ("c_long", "long"),
    ("c_void", "void"),
    ("i32", "int32_t"),
    ("i64", "int64_t"),
    ("mode_t", "mode_t"),
    ("msqid_ds", "struct msqid_ds"),
    ("pid_t", "pid_t"),
    ("sigevent", "struct sigevent"),
    ("size_t", "size_t"),
    ("ssize_t", "ssize_t"),
    ("timespec", "struct timespec"),
    ("u16", "uint16_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("u8", "uint8_t"),
];

/// The library's own types that are not structures.
const ALIASES: [&str; 2] = ["umsg_mqd_t", "umsg_handle"];

/// The types that are pointers to a program's functions.
const FUNCTIONS: [&str; 3] = ["umsg_ring_visitor", "umsg_ring_filter", "umsg_log"];

/// Returns the C declaration of `name` with a Rust type.
pub fn declare(rust: &Type, name: &str) -> Result<String> {
    match rust {
        Type::Path(path) => match optional(path) {
            Some(function) => declare(function, name),
            None => Ok(format!("{} {name}", base(path)?)),
        },
        Type::FnPtr(function) => pointer_to(function, name),
        Type::Ptr(pointer) => {
            let constant = match pointer.mutability {
                syn::PointerMutability::Const(_) => "const ",
                syn::PointerMutability::Mut(_) => "",
            };
            Ok(format!(
                "{constant}{}",
                declare(&pointer.elem, &format!("*{name}"))?
            ))
        }
        Type::Array(array) => {
            let Expr::Lit(length) = &array.len else {
                return Err(Failure::new(format!(
                    "the length of {name} is not a number"
                )));
            };
            let Lit::Int(length) = &length.lit else {
                return Err(Failure::new(format!(
                    "the length of {name} is not a number"
                )));
            };
            declare(&array.elem, &format!("{name}[{length}]"))
        }
        _ => Err(Failure::new(format!("C does not have the type of {name}"))),
    }
}

/// Returns the type inside an `Option`: a pointer to a function, which may be NULL.
fn optional(path: &syn::TypePath) -> Option<&Type> {
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(inside) if last.ident == "Option" => Some(inside),
        _ => None,
    }
}

/// Returns the declaration of `name` as a pointer to a function.
fn pointer_to(function: &syn::TypeFnPtr, name: &str) -> Result<String> {
    let mut parameters = Vec::new();
    for input in &function.inputs {
        let Some((named, _)) = &input.name else {
            return Err(Failure::new(format!("a parameter of {name} has no name")));
        };
        parameters.push(declare(&input.ty, &named.to_string())?);
    }
    let pointer = format!("(*{name})({})", parameters.join(", "));
    match &function.output {
        ReturnType::Default => Ok(format!("void {pointer}")),
        ReturnType::Type(_, returned) => declare(returned, &pointer),
    }
}

/// Returns the library's type that a manual page has to explain: a structure to which a pointer points, or the type of a function of the program.
pub fn explained(rust: &Type) -> Option<String> {
    let (path, is_explained): (_, fn(&str) -> bool) = match rust {
        Type::Ptr(pointer) => (&*pointer.elem, is_structure),
        other => (other, |name| FUNCTIONS.contains(&name)),
    };
    let Type::Path(path) = path else {
        return None;
    };
    let name = path.path.segments.last()?.ident.to_string();
    is_explained(&name).then_some(name)
}

fn is_structure(name: &str) -> bool {
    name.starts_with("umsg_") && !ALIASES.contains(&name) && !FUNCTIONS.contains(&name)
}

fn base(path: &syn::TypePath) -> Result<String> {
    let name = match path.path.segments.last() {
        Some(last) => last.ident.to_string(),
        None => String::new(),
    };
    if let Some((_, c)) = NAMES.iter().find(|(rust, _)| *rust == name) {
        return Ok((*c).to_owned());
    }
    match name.starts_with("umsg_") {
        true if is_structure(&name) => Ok(format!("struct {name}")),
        true => Ok(name),
        false => Err(Failure::new(format!("C does not have the type {name}"))),
    }
}
