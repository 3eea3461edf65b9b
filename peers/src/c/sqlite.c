/* SQLite: rows with an integer primary key, a write-ahead log, one writer. A worker is a connection with prepared
 * statements. Writers of one process take turns by a mutex: its own waiting is to sleep and to ask again. */
#include "peer.h"
#include <pthread.h>
#include <sqlite3.h>

enum { GET, PUT, ADD, SCAN, STATEMENTS };
enum { BEGIN_WRITE, BEGIN_READ, COMMIT, ROLLBACK, ENDS };

struct store {
  char path[512];
  uint64_t cache_bytes;
  /* 0 if the data will not fit into memory: a map would read ahead of every access. */
  uint64_t map_bytes;
  pthread_mutex_t writer;
  sqlite3 *keeper; /* While it is open, no other connection that closes takes the log for the last time. */
};

struct worker {
  struct store *store;
  sqlite3 *db;
  sqlite3_stmt *statements[PEER_TABLES][STATEMENTS];
  sqlite3_stmt *ends[ENDS];
  int is_open, is_writing;
};

static int failed(sqlite3 *db, int code, const char *call) {
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED) return PEER_AGAIN;
  return peer_failed(call, db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

#define TRY(db, call)                                             \
  do {                                                            \
    int code_ = (call);                                           \
    if (code_ != SQLITE_OK) return failed((db), code_, #call);    \
  } while (0)

static const char *version(void) { return sqlite3_libversion(); }

static int connect_to(struct store *store, int is_sync, sqlite3 **out) {
  char text[256];
  TRY(*out, sqlite3_open_v2(store->path, out,
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                            NULL));
  sqlite3_busy_timeout(*out, 10000);
  TRY(*out, sqlite3_exec(*out, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=10000; PRAGMA temp_store=MEMORY;",
                         NULL, NULL, NULL));
  /* A cache for each connection, in KiB, and what lies behind it is mapped. */
  snprintf(text, sizeof text, "PRAGMA synchronous=%s; PRAGMA cache_size=-%llu; PRAGMA mmap_size=%llu;",
           is_sync ? "FULL" : "OFF", (unsigned long long)(store->cache_bytes >> 14), (unsigned long long)store->map_bytes);
  TRY(*out, sqlite3_exec(*out, text, NULL, NULL, NULL));
  return PEER_OK;
}

static int open_store(const struct peer_settings *settings, void **out) {
  struct store *store = calloc(1, sizeof *store);
  int code;
  if (!store) return peer_failed("calloc", "no memory");
  *out = store;
  snprintf(store->path, sizeof store->path, "%s/data", settings->dir);
  store->cache_bytes = settings->cache_bytes;
  store->map_bytes = settings->is_larger_than_memory ? 0 : settings->file_bytes_max;
  pthread_mutex_init(&store->writer, NULL);
  code = connect_to(store, 1, &store->keeper);
  if (code != PEER_OK) return code;
  for (int table = 0; table < PEER_TABLES; table++) {
    char text[128];
    snprintf(text, sizeof text, "CREATE TABLE IF NOT EXISTS t%d (k INTEGER PRIMARY KEY, n INTEGER, v BLOB)", table);
    TRY(store->keeper, sqlite3_exec(store->keeper, text, NULL, NULL, NULL));
  }
  return PEER_OK;
}

static int checkpoint(void *opaque) {
  struct store *store = opaque;
  TRY(store->keeper, sqlite3_wal_checkpoint_v2(store->keeper, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL));
  return PEER_OK;
}

static int close_store(void *opaque) {
  struct store *store = opaque;
  TRY(store->keeper, sqlite3_close(store->keeper));
  pthread_mutex_destroy(&store->writer);
  free(store);
  return PEER_OK;
}

static int make_worker(void *opaque, int is_sync, void **out) {
  static const char *const texts[STATEMENTS] = {
      "SELECT n, v FROM t%d WHERE k = ?1",
      "INSERT OR REPLACE INTO t%d VALUES (?1, ?2, ?3)",
      "UPDATE t%d SET n = n + ?2 WHERE k = ?1",
      "SELECT k, n, v FROM t%d WHERE k >= ?1 ORDER BY k LIMIT ?2",
  };
  static const char *const ends[ENDS] = {"BEGIN IMMEDIATE", "BEGIN", "COMMIT", "ROLLBACK"};
  struct worker *worker = calloc(1, sizeof *worker);
  int code;
  if (!worker) return peer_failed("calloc", "no memory");
  *out = worker;
  worker->store = opaque;
  code = connect_to(worker->store, is_sync, &worker->db);
  if (code != PEER_OK) return code;
  for (int table = 0; table < PEER_TABLES; table++) {
    for (int no = 0; no < STATEMENTS; no++) {
      char text[128];
      snprintf(text, sizeof text, texts[no], table);
      TRY(worker->db, sqlite3_prepare_v3(worker->db, text, -1, SQLITE_PREPARE_PERSISTENT,
                                         &worker->statements[table][no], NULL));
    }
  }
  for (int no = 0; no < ENDS; no++) {
    TRY(worker->db, sqlite3_prepare_v3(worker->db, ends[no], -1, SQLITE_PREPARE_PERSISTENT, &worker->ends[no], NULL));
  }
  return PEER_OK;
}

/* Runs a statement that returns no rows. */
static int run(struct worker *worker, sqlite3_stmt *statement, const char *call) {
  int code = sqlite3_step(statement);
  sqlite3_reset(statement);
  return code == SQLITE_DONE ? PEER_OK : failed(worker->db, code, call);
}

static int finish(struct worker *worker, int no) {
  int code = PEER_OK;
  if (worker->is_open) {
    code = run(worker, worker->ends[no], no == COMMIT ? "commit" : "rollback");
    /* A commit that was refused leaves the transaction open, for the rollback that follows. */
    if (code == PEER_OK || no == ROLLBACK) {
      worker->is_open = 0;
      if (worker->is_writing) pthread_mutex_unlock(&worker->store->writer);
      worker->is_writing = 0;
    }
  }
  return code;
}

static int commit(void *opaque) { return finish(opaque, COMMIT); }
static int abort_txn(void *opaque) { return finish(opaque, ROLLBACK); }

static void retire(void *opaque) {
  struct worker *worker = opaque;
  finish(worker, ROLLBACK);
  for (int table = 0; table < PEER_TABLES; table++) {
    for (int no = 0; no < STATEMENTS; no++) sqlite3_finalize(worker->statements[table][no]);
  }
  for (int no = 0; no < ENDS; no++) sqlite3_finalize(worker->ends[no]);
  sqlite3_close(worker->db);
  free(worker);
}

static int begin(void *opaque, int kind) {
  struct worker *worker = opaque;
  int code;
  if (kind == PEER_ONE) return PEER_OK; /* A statement is a transaction by itself. */
  if (kind == PEER_WRITE) pthread_mutex_lock(&worker->store->writer);
  code = run(worker, worker->ends[kind == PEER_WRITE ? BEGIN_WRITE : BEGIN_READ], "begin");
  worker->is_open = code == PEER_OK;
  worker->is_writing = code == PEER_OK && kind == PEER_WRITE;
  if (code != PEER_OK && kind == PEER_WRITE) pthread_mutex_unlock(&worker->store->writer);
  return code;
}

/* The record of a row: its number, then the rest. */
static int record_of(sqlite3_stmt *row, int column, uint8_t *record, size_t *length) {
  sqlite3_int64 number = sqlite3_column_int64(row, column);
  const void *rest = sqlite3_column_blob(row, column + 1);
  size_t rest_length = (size_t)sqlite3_column_bytes(row, column + 1);
  if (rest_length + 8 > *length) return peer_failed("get", "the value is longer than its buffer");
  memcpy(record, &number, 8);
  if (rest_length) memcpy(record + 8, rest, rest_length);
  *length = rest_length + 8;
  return PEER_OK;
}

static int get(void *opaque, int table, uint64_t key, void *value, size_t *length) {
  struct worker *worker = opaque;
  sqlite3_stmt *statement = worker->statements[table][GET];
  int code, found;
  sqlite3_bind_int64(statement, 1, (sqlite3_int64)key);
  code = sqlite3_step(statement);
  found = code == SQLITE_ROW ? record_of(statement, 0, value, length) : PEER_NONE;
  sqlite3_reset(statement);
  if (code != SQLITE_ROW && code != SQLITE_DONE) return failed(worker->db, code, "get");
  return found;
}

static int put(void *opaque, int table, uint64_t key, const void *value, size_t length) {
  struct worker *worker = opaque;
  sqlite3_stmt *statement = worker->statements[table][PUT];
  sqlite3_int64 number;
  if (length < 8) return peer_failed("put", "not a record with a number");
  memcpy(&number, value, 8);
  sqlite3_bind_int64(statement, 1, (sqlite3_int64)key);
  sqlite3_bind_int64(statement, 2, number);
  sqlite3_bind_blob(statement, 3, (const char *)value + 8, (int)length - 8, SQLITE_STATIC);
  return run(worker, statement, "put");
}

static int add(void *opaque, int table, uint64_t key, int64_t delta) {
  struct worker *worker = opaque;
  sqlite3_stmt *statement = worker->statements[table][ADD];
  int code;
  sqlite3_bind_int64(statement, 1, (sqlite3_int64)key);
  sqlite3_bind_int64(statement, 2, delta);
  code = run(worker, statement, "add");
  return code == PEER_OK && sqlite3_changes(worker->db) == 0 ? PEER_NONE : code;
}

static int scan(void *opaque, int table, uint64_t from, uint64_t count_max, peer_visit visit, void *context) {
  struct worker *worker = opaque;
  sqlite3_stmt *statement = worker->statements[table][SCAN];
  int code;
  sqlite3_bind_int64(statement, 1, (sqlite3_int64)from);
  sqlite3_bind_int64(statement, 2, count_max > INT64_MAX ? -1 : (sqlite3_int64)count_max);
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    uint8_t record[PEER_VALUE_MAX];
    size_t length = sizeof record;
    if (record_of(statement, 1, record, &length) != PEER_OK) break;
    if (visit(context, (uint64_t)sqlite3_column_int64(statement, 0), record, length)) {
      code = SQLITE_DONE;
      break;
    }
  }
  sqlite3_reset(statement);
  return code == SQLITE_DONE ? PEER_OK : failed(worker->db, code, "scan");
}

const struct peer peer_sqlite = {version, open_store, close_store, checkpoint, make_worker, retire, begin, commit,
                                 abort_txn, get, put, put, add, scan};
