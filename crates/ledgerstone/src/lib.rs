//! A transactional storage environment: tables, transactions, recovery
