#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ledgerstone_fuzz::log_reader(bytes));
