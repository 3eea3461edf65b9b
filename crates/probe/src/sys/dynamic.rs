//! A call into a dynamic library, found by name at run time.

use crate::error::ProbeError;

/// `labs` of the C library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    function: extern "C" fn(libc::c_long) -> libc::c_long,
}

impl Function {
    pub(crate) fn find() -> Result<Function, ProbeError> {
        let none = || ProbeError::Missing("no dynamic C library: the program is linked statically".into());
        // SAFETY: the C library is loaded already, so nothing of it is run or unloaded; the name is terminated.
        let found = unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if library.is_null() { std::ptr::null_mut() } else { libc::dlsym(library, c"labs".as_ptr()) }
        };
        if found.is_null() {
            return Err(none());
        }
        // SAFETY: C standard, 7.22.6.1: this is the type of `labs`.
        let function =
            unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(libc::c_long) -> libc::c_long>(found) };
        Ok(Function { function })
    }

    #[inline]
    pub(crate) fn call(self, value: libc::c_long) -> libc::c_long {
        (self.function)(value)
    }
}
