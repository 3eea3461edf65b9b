//! `#[derive(Key)]` and `#[derive(Value)]` for structs of ledgerstone's users: the fields in their order, encoded as a
//! tuple of them would be.
//!
//! Knows only how the traits of `ledgerstone::typed` are written; the encodings are there. Use it by way of that crate
//! (feature `derive`).
#![forbid(unsafe_code)]

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Ident, LitStr, Member, Type, parse_macro_input};

/// What the catalog calls a type has at most so many bytes.
const NAME_BYTES_MAX: usize = 255;

/// Implements `Key` for a struct whose fields are keys: they order by the first field, then the second, and so on, as
/// the order that `#[derive(Ord)]` gives it.
///
/// In the catalog the type has the name of a tuple of its fields, or of its field if it has one, because it has the
/// same bytes. `#[ledgerstone(name = "...")]` gives it one of its own, so that a table of it is not opened as one of
/// tuples. Fields that are moved, added or removed make another encoding: give the type another name then.
#[proc_macro_derive(Key, attributes(ledgerstone))]
pub fn key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    Struct::of(&input).map_or_else(Error::into_compile_error, |found| found.key()).into()
}

/// Implements `Value` for a struct whose fields are values. Names in the catalog are as for keys.
#[proc_macro_derive(Value, attributes(ledgerstone))]
pub fn value(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    Struct::of(&input).map_or_else(Error::into_compile_error, |found| found.value()).into()
}

struct Struct<'i> {
    ident: &'i Ident,
    /// The fields but the last.
    first: Vec<(Member, &'i Type)>,
    last: (Member, &'i Type),
    name: Option<LitStr>,
}

impl<'i> Struct<'i> {
    fn of(input: &'i DeriveInput) -> Result<Struct<'i>, Error> {
        let ident = &input.ident;
        let Data::Struct(data) = &input.data else {
            return Err(Error::new_spanned(ident, "only structs have fields in an order: implement the trait by hand"));
        };
        if !input.generics.params.is_empty() {
            let what = "a generic struct has no one name in the catalog: implement the trait by hand";
            return Err(Error::new_spanned(&input.generics, what));
        }
        let mut first: Vec<_> = data.fields.members().zip(data.fields.iter().map(|field| &field.ty)).collect();
        let Some(last) = first.pop() else {
            return Err(Error::new_spanned(ident, "a struct without fields has nothing to store: use `()`"));
        };
        Ok(Struct { ident, first, last, name: name_of(input)? })
    }

    /// The name in the catalog, where `of` is the trait that knows those of the fields.
    fn type_name(&self, of: &TokenStream) -> TokenStream {
        let last = self.last.1;
        match &self.name {
            Some(name) => quote!(::ledgerstone::typed::TypeName::Named(#name)),
            None if self.first.is_empty() => quote!(<#last as #of>::TYPE),
            None => {
                let first = self.first.iter().map(|(_, ty)| ty);
                quote!(::ledgerstone::typed::TypeName::Tuple(&[#(<#first as #of>::TYPE,)* <#last as #of>::TYPE]))
            }
        }
    }

    fn key(&self) -> TokenStream {
        let Struct { ident, first, last: (last, last_type), .. } = self;
        let (fields, types): (Vec<_>, Vec<_>) = first.iter().map(|(field, ty)| (field, *ty)).unzip();
        let type_name = self.type_name(&quote!(::ledgerstone::typed::Key));
        quote! {
            #[automatically_derived]
            impl ::ledgerstone::typed::AsKey<#ident> for #ident {
                fn encode(
                    &self,
                    out: &mut ::std::vec::Vec<u8>,
                ) -> ::std::result::Result<(), ::ledgerstone::typed::EncodeError> {
                    #(<#types as ::ledgerstone::typed::AsKey<#types>>::encode_part(&self.#fields, out)?;)*
                    <#last_type as ::ledgerstone::typed::AsKey<#last_type>>::encode(&self.#last, out)
                }
                fn encode_part(
                    &self,
                    out: &mut ::std::vec::Vec<u8>,
                ) -> ::std::result::Result<(), ::ledgerstone::typed::EncodeError> {
                    #(<#types as ::ledgerstone::typed::AsKey<#types>>::encode_part(&self.#fields, out)?;)*
                    <#last_type as ::ledgerstone::typed::AsKey<#last_type>>::encode_part(&self.#last, out)
                }
            }

            #[automatically_derived]
            impl ::ledgerstone::typed::Key for #ident {
                const TYPE: ::ledgerstone::typed::TypeName = #type_name;
                #[allow(unused_mut)]
                fn decode(
                    mut bytes: &[u8],
                ) -> ::std::result::Result<Self, ::ledgerstone::typed::DecodeError> {
                    ::std::result::Result::Ok(#ident {
                        #(#fields: <#types as ::ledgerstone::typed::Key>::decode_part(&mut bytes)?,)*
                        #last: <#last_type as ::ledgerstone::typed::Key>::decode(bytes)?,
                    })
                }
                fn decode_part(
                    bytes: &mut &[u8],
                ) -> ::std::result::Result<Self, ::ledgerstone::typed::DecodeError> {
                    ::std::result::Result::Ok(#ident {
                        #(#fields: <#types as ::ledgerstone::typed::Key>::decode_part(bytes)?,)*
                        #last: <#last_type as ::ledgerstone::typed::Key>::decode_part(bytes)?,
                    })
                }
            }
        }
    }

    fn value(&self) -> TokenStream {
        let Struct { ident, first, last: (last, last_type), .. } = self;
        let (fields, types): (Vec<_>, Vec<_>) = first.iter().map(|(field, ty)| (field, *ty)).unzip();
        let type_name = self.type_name(&quote!(::ledgerstone::typed::Value));
        quote! {
            #[automatically_derived]
            impl ::ledgerstone::typed::AsValue<#ident> for #ident {
                fn encode(
                    &self,
                    out: &mut ::std::vec::Vec<u8>,
                ) -> ::std::result::Result<(), ::ledgerstone::typed::EncodeError> {
                    #(::ledgerstone::typed::derived::encode_part::<#types>(&self.#fields, out)?;)*
                    <#last_type as ::ledgerstone::typed::AsValue<#last_type>>::encode(&self.#last, out)
                }
            }

            #[automatically_derived]
            impl ::ledgerstone::typed::Value for #ident {
                const TYPE: ::ledgerstone::typed::TypeName = #type_name;
                #[allow(unused_mut)]
                fn decode(
                    mut bytes: &[u8],
                ) -> ::std::result::Result<Self, ::ledgerstone::typed::DecodeError> {
                    ::std::result::Result::Ok(#ident {
                        #(#fields: ::ledgerstone::typed::derived::decode_part::<#types>(&mut bytes)?,)*
                        #last: <#last_type as ::ledgerstone::typed::Value>::decode(bytes)?,
                    })
                }
            }
        }
    }
}

/// The name that `#[ledgerstone(name = "...")]` gives, if it is there.
fn name_of(input: &DeriveInput) -> Result<Option<LitStr>, Error> {
    let mut name = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("ledgerstone")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("only `name = \"...\"` is known"));
            }
            let found: LitStr = meta.value()?.parse()?;
            if found.value().is_empty() || found.value().len() > NAME_BYTES_MAX {
                return Err(Error::new_spanned(&found, "a name has 1 to 255 bytes"));
            }
            name = Some(found);
            Ok(())
        })?;
    }
    Ok(name)
}
