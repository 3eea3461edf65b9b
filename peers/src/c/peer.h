/* What every peer written in C offers: the same calls, so that one module of Rust drives them all.
 *
 * Keys are numbers; each peer stores them in the form that its users would choose. A record begins with a number of
 * 64 bits, little-endian, which `add` changes. A worker belongs to one thread, and has at most one transaction.
 *
 * Calls return PEER_OK, PEER_NONE (no such record), PEER_AGAIN (abort and run the transaction again) or PEER_FAILED,
 * after which `peer_error` has the text. */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEER_OK = 0, PEER_NONE = 1, PEER_AGAIN = 2, PEER_FAILED = -1 };
/* Kinds of transactions: PEER_ONE reads one record only, so nothing needs to hold its reads together. */
enum { PEER_WRITE = 0, PEER_READ = 1, PEER_ONE = 2 };
enum { PEER_TABLES = 5, PEER_VALUE_MAX = 1024 };

struct peer_settings {
  const char *dir;
  uint64_t cache_bytes;
  /* More than the data will ever take. */
  uint64_t file_bytes_max;
  /* 1 if the data will not fit into memory. */
  int is_larger_than_memory;
  /* 1 if commits will wait for the device. */
  int is_durable;
};

/* Returns 0 to go on with the scan. */
typedef int (*peer_visit)(void *context, uint64_t key, const void *value, size_t length);

struct peer {
  const char *(*version)(void);
  int (*open)(const struct peer_settings *settings, void **store);
  int (*close)(void *store);
  /* Brings all that was committed into the data files, durably. */
  int (*checkpoint)(void *store);
  /* A worker whose commits wait for the device, or do not. */
  int (*worker)(void *store, int is_sync, void **worker);
  void (*retire)(void *worker);
  int (*begin)(void *worker, int kind);
  int (*commit)(void *worker);
  int (*abort)(void *worker);
  /* `length` is the room in `value`, then what is there. */
  int (*get)(void *worker, int table, uint64_t key, void *value, size_t *length);
  int (*put)(void *worker, int table, uint64_t key, const void *value, size_t length);
  /* A put above every key of the table. */
  int (*append)(void *worker, int table, uint64_t key, const void *value, size_t length);
  int (*add)(void *worker, int table, uint64_t key, int64_t delta);
  /* Records from `from` on, at most `count_max`. */
  int (*scan)(void *worker, int table, uint64_t from, uint64_t count_max, peer_visit visit, void *context);
};

/* The text of this thread's last failure. */
const char *peer_error(void);
/* Keeps the text and returns PEER_FAILED. */
int peer_failed(const char *call, const char *why);

/* Of numbers below 2^63: their bytes sort as they do. */
static inline void peer_key(uint64_t key, uint8_t bytes[8]) {
  uint64_t turned = __builtin_bswap64(key);
  memcpy(bytes, &turned, 8);
}

static inline uint64_t peer_number(const void *bytes) {
  uint64_t turned;
  memcpy(&turned, bytes, 8);
  return __builtin_bswap64(turned);
}

/* Copies a value out; a caller's room is always PEER_VALUE_MAX. */
static inline int peer_copy(const void *from, size_t from_length, void *value, size_t *length) {
  if (from_length > *length) return peer_failed("get", "the value is longer than its buffer");
  memcpy(value, from, from_length);
  *length = from_length;
  return PEER_OK;
}

/* The record with `delta` added to its number. */
static inline int peer_added(const void *from, size_t length, int64_t delta, uint8_t *record) {
  uint64_t number;
  if (length < 8 || length > PEER_VALUE_MAX) return peer_failed("add", "not a record with a number");
  memcpy(record, from, length);
  memcpy(&number, record, 8);
  number += (uint64_t)delta;
  memcpy(record, &number, 8);
  return PEER_OK;
}

#endif
