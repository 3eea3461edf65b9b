/* LMDB: a map of memory, one writer, readers that never wait. Integer keys; a reader's transaction is renewed instead
 * of begun, as its documentation advises. Without sync is MDB_NOSYNC, which the environment can switch at any time. */
#include "peer.h"
#include <lmdb.h>

struct store {
  MDB_env *env;
  MDB_dbi tables[PEER_TABLES];
};

struct worker {
  struct store *store;
  MDB_txn *reader; /* Kept, reset between two transactions. */
  MDB_txn *writer;
  MDB_txn *txn; /* The one that is open. */
};

#define TRY(call)                                                       \
  do {                                                                  \
    int code_ = (call);                                                 \
    if (code_ == MDB_NOTFOUND) return PEER_NONE;                        \
    if (code_ != 0) return peer_failed(#call, mdb_strerror(code_));     \
  } while (0)

static const char *version(void) { return mdb_version(NULL, NULL, NULL); }

static int open_store(const struct peer_settings *settings, void **out) {
  struct store *store = calloc(1, sizeof *store);
  /* A map that is written to saves a copy and a call for each page, but a sync of the map costs more than it saves. */
  unsigned flags = MDB_NOTLS | (settings->is_durable ? 0 : MDB_WRITEMAP);
  MDB_txn *txn;
  if (!store) return peer_failed("calloc", "no memory");
  *out = store;
  if (settings->is_larger_than_memory) flags |= MDB_NORDAHEAD;
  TRY(mdb_env_create(&store->env));
  TRY(mdb_env_set_mapsize(store->env, settings->file_bytes_max));
  TRY(mdb_env_set_maxdbs(store->env, PEER_TABLES));
  TRY(mdb_env_set_maxreaders(store->env, 1024));
  TRY(mdb_env_open(store->env, settings->dir, flags, 0644));
  TRY(mdb_txn_begin(store->env, NULL, 0, &txn));
  for (int table = 0; table < PEER_TABLES; table++) {
    char name[2] = {(char)('a' + table), 0};
    TRY(mdb_dbi_open(txn, name, MDB_CREATE | MDB_INTEGERKEY, &store->tables[table]));
  }
  TRY(mdb_txn_commit(txn));
  return PEER_OK;
}

static int close_store(void *opaque) {
  struct store *store = opaque;
  mdb_env_sync(store->env, 1);
  mdb_env_close(store->env);
  free(store);
  return PEER_OK;
}

static int checkpoint(void *opaque) {
  struct store *store = opaque;
  TRY(mdb_env_sync(store->env, 1));
  return PEER_OK;
}

static int make_worker(void *opaque, int is_sync, void **out) {
  struct worker *worker = calloc(1, sizeof *worker);
  if (!worker) return peer_failed("calloc", "no memory");
  *out = worker;
  worker->store = opaque;
  TRY(mdb_env_set_flags(worker->store->env, MDB_NOSYNC, !is_sync));
  return PEER_OK;
}

static void retire(void *opaque) {
  struct worker *worker = opaque;
  if (worker->writer) mdb_txn_abort(worker->writer);
  if (worker->reader) mdb_txn_abort(worker->reader);
  free(worker);
}

static int begin(void *opaque, int kind) {
  struct worker *worker = opaque;
  if (kind == PEER_WRITE) {
    TRY(mdb_txn_begin(worker->store->env, NULL, 0, &worker->writer));
    worker->txn = worker->writer;
    return PEER_OK;
  }
  if (worker->reader) {
    TRY(mdb_txn_renew(worker->reader));
  } else {
    TRY(mdb_txn_begin(worker->store->env, NULL, MDB_RDONLY, &worker->reader));
  }
  worker->txn = worker->reader;
  return PEER_OK;
}

static int commit(void *opaque) {
  struct worker *worker = opaque;
  MDB_txn *writer = worker->writer;
  worker->txn = NULL;
  if (!writer) {
    mdb_txn_reset(worker->reader);
    return PEER_OK;
  }
  worker->writer = NULL;
  TRY(mdb_txn_commit(writer));
  return PEER_OK;
}

static int abort_txn(void *opaque) {
  struct worker *worker = opaque;
  if (worker->writer) {
    mdb_txn_abort(worker->writer);
    worker->writer = NULL;
  } else if (worker->txn) {
    mdb_txn_reset(worker->reader);
  }
  worker->txn = NULL;
  return PEER_OK;
}

static int get(void *opaque, int table, uint64_t key, void *value, size_t *length) {
  struct worker *worker = opaque;
  MDB_val k = {8, &key}, v;
  TRY(mdb_get(worker->txn, worker->store->tables[table], &k, &v));
  return peer_copy(v.mv_data, v.mv_size, value, length);
}

static int put(void *opaque, int table, uint64_t key, const void *value, size_t length) {
  struct worker *worker = opaque;
  MDB_val k = {8, &key}, v = {length, (void *)value};
  TRY(mdb_put(worker->txn, worker->store->tables[table], &k, &v, 0));
  return PEER_OK;
}

static int append(void *opaque, int table, uint64_t key, const void *value, size_t length) {
  struct worker *worker = opaque;
  MDB_val k = {8, &key}, v = {length, (void *)value};
  TRY(mdb_put(worker->txn, worker->store->tables[table], &k, &v, MDB_APPEND));
  return PEER_OK;
}

static int add(void *opaque, int table, uint64_t key, int64_t delta) {
  struct worker *worker = opaque;
  MDB_val k = {8, &key}, v;
  uint8_t record[PEER_VALUE_MAX];
  MDB_cursor *cursor;
  int code;
  TRY(mdb_cursor_open(worker->txn, worker->store->tables[table], &cursor));
  code = mdb_cursor_get(cursor, &k, &v, MDB_SET);
  if (code == 0 && peer_added(v.mv_data, v.mv_size, delta, record) == PEER_OK) {
    v.mv_data = record;
    code = mdb_cursor_put(cursor, &k, &v, MDB_CURRENT);
  }
  mdb_cursor_close(cursor);
  TRY(code);
  return PEER_OK;
}

static int scan(void *opaque, int table, uint64_t from, uint64_t count_max, peer_visit visit, void *context) {
  struct worker *worker = opaque;
  MDB_val k = {8, &from}, v;
  MDB_cursor *cursor;
  int code;
  TRY(mdb_cursor_open(worker->txn, worker->store->tables[table], &cursor));
  code = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
  for (uint64_t count = 0; code == 0 && count < count_max; count++) {
    uint64_t key;
    memcpy(&key, k.mv_data, 8);
    if (visit(context, key, v.mv_data, v.mv_size) || count + 1 == count_max) break;
    code = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
  }
  mdb_cursor_close(cursor);
  if (code != 0 && code != MDB_NOTFOUND) return peer_failed("scan", mdb_strerror(code));
  return PEER_OK;
}

const struct peer peer_lmdb = {version, open_store, close_store, checkpoint, make_worker, retire, begin, commit,
                               abort_txn, get, put, append, add, scan};
