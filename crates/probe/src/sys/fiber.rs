//! Two stacks in one thread, and the switch between them in user mode: what the paper calls a fiber, bare.
//!
//! A switch saves the registers that a called function must keep, changes the stack pointer, and restores the other
//! side's.
//!
//! F1. The fiber's stack is owned by `Fiber` and lives as long as it.
//! F2. `inside` and `outside` are each either the stack pointer of the side that is not running, as `switch` left it,
//!     or stale. Only `switch_to` writes them.
//! F3. The fiber's function never returns and owns nothing that would need dropping: it loops over one shared counter.

use crate::error::ProbeError;
use crate::sys::aligned::Aligned;

const STACK_BYTES: usize = 64 << 10;

/// A second stack, whose function counts and switches back, for ever.
pub(crate) struct Fiber {
    _stack: Aligned,
    inside: *mut u8,
    outside: *mut u8,
    count: u64,
}

impl Fiber {
    /// A fiber that has not run yet.
    pub(crate) fn new() -> Result<Box<Fiber>, ProbeError> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err(ProbeError::Missing("the stack switch is written for x86-64 only".into()));
        }
        let mut stack = Aligned::new(STACK_BYTES);
        let top = stack.as_mut_ptr().wrapping_add(STACK_BYTES);
        let mut fiber =
            Box::new(Fiber { _stack: stack, inside: std::ptr::null_mut(), outside: std::ptr::null_mut(), count: 0 });
        let argument: *mut Fiber = &mut *fiber;
        fiber.inside = arch::prepare(top, argument.cast());
        Ok(fiber)
    }

    /// Runs the fiber until it switches back: two switches. Returns how often it has run.
    #[inline]
    pub(crate) fn switch_to(&mut self) -> u64 {
        let fiber: *mut Fiber = self;
        // SAFETY: F1 and F2: `inside` is where the fiber was left, or what `prepare` made; its stack is alive. The
        // fiber touches this value only between here and its switch back, while we hold it exclusively.
        unsafe {
            arch::switch(&raw mut (*fiber).outside, (*fiber).inside);
            (*fiber).count
        }
    }
}

/// What the fiber runs.
extern "C" fn body(fiber: *mut Fiber) -> ! {
    loop {
        // SAFETY: `switch_to` holds the value exclusively and waits inside `switch` (F2); `outside` is its stack
        // pointer.
        unsafe {
            (*fiber).count = (*fiber).count.wrapping_add(1);
            arch::switch(&raw mut (*fiber).inside, (*fiber).outside);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::{Fiber, body};

    /// Lays out a new stack as `switch` expects one that it left, with `entry` as the place to return to.
    pub(super) fn prepare(top: *mut u8, argument: *mut u8) -> *mut u8 {
        let start: extern "C" fn(*mut Fiber) -> ! = body;
        // From low to high: rbx (the argument), rbp, r12 (the function), r13, r14, r15 and the return address. Two more
        // words keep the stack aligned to 16 bytes at the call.
        let words: [usize; 9] = [argument as usize, 0, start as usize, 0, 0, 0, entry as *const () as usize, 0, 0];
        let at = top.wrapping_sub(words.len() * size_of::<usize>());
        // SAFETY: `top` ends a stack of 64 KiB that nobody uses yet, aligned to a page.
        unsafe { at.cast::<[usize; 9]>().write(words) };
        at
    }

    /// First instruction of a new fiber: what was restored into rbx is the argument, r12 the function.
    #[unsafe(naked)]
    unsafe extern "C" fn entry() {
        core::arch::naked_asm!("mov rdi, rbx", "call r12", "ud2")
    }

    /// Leaves the running side, whose stack pointer goes to `save`, and goes on where `to` was left.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn switch(save: *mut *mut u8, to: *mut u8) {
        core::arch::naked_asm!(
            "push r15",
            "push r14",
            "push r13",
            "push r12",
            "push rbp",
            "push rbx",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "pop rbx",
            "pop rbp",
            "pop r12",
            "pop r13",
            "pop r14",
            "pop r15",
            "ret",
        )
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arch {
    /// Never called: `Fiber::new` refuses before.
    pub(super) fn prepare(top: *mut u8, _argument: *mut u8) -> *mut u8 {
        top
    }

    /// Never called.
    ///
    /// # Safety
    /// None is needed.
    pub(super) unsafe fn switch(_save: *mut *mut u8, _to: *mut u8) {}
}

#[cfg(test)]
mod tests {
    use super::Fiber;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_switch_runs_the_other_side_once() {
        let mut fiber = Fiber::new().expect("x86-64");
        for expected in 1..=1000 {
            assert_eq!(fiber.switch_to(), expected);
        }
    }
}
