/* Berkeley DB: B-trees with locks on pages, a log and group commit. DB_RMW where a record is read to be changed. A
 * deadlock is looked for whenever a lock is waited for. Tellers and branches are on small pages, as its guide advises
 * where many change few records. */
#include "peer.h"
#include <db.h>
#include <errno.h>

struct store {
  DB_ENV *env;
  DB *tables[PEER_TABLES];
};

struct worker {
  struct store *store;
  DB_TXN *txn;
  u_int32_t commit_flags;
};

#define TRY(call)                                                                   \
  do {                                                                              \
    int code_ = (call);                                                             \
    if (code_ == DB_NOTFOUND) return PEER_NONE;                                     \
    if (code_ == DB_LOCK_DEADLOCK || code_ == DB_LOCK_NOTGRANTED) return PEER_AGAIN; \
    if (code_ != 0) return peer_failed(#call, db_strerror(code_));                  \
  } while (0)

static const char *version(void) { return db_version(NULL, NULL, NULL); }

static int open_store(const struct peer_settings *settings, void **out) {
  struct store *store = calloc(1, sizeof *store);
  u_int32_t flags = DB_CREATE | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK | DB_INIT_MPOOL | DB_THREAD | DB_PRIVATE |
                    DB_RECOVER;
  /* A lock for each page of the largest transaction; the table of locks is made at once. */
  u_int32_t lock_count = settings->is_larger_than_memory ? 20000 : 200000;
  DB_ENV *env;
  if (!store) return peer_failed("calloc", "no memory");
  *out = store;
  TRY(db_env_create(&env, 0));
  store->env = env;
  TRY(env->set_cachesize(env, (u_int32_t)(settings->cache_bytes >> 30), (u_int32_t)(settings->cache_bytes & 0x3fffffff),
                         1));
  TRY(env->set_lk_detect(env, DB_LOCK_MINWRITE));
  TRY(env->set_lk_max_locks(env, lock_count));
  TRY(env->set_lk_max_objects(env, lock_count));
  TRY(env->set_lk_max_lockers(env, 2000));
  TRY(env->set_tx_max(env, 2000));
  TRY(env->set_lg_bsize(env, settings->is_larger_than_memory ? 1 << 20 : 16 << 20));
  TRY(env->set_lg_max(env, 256 << 20));
  TRY(env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1));
  TRY(env->open(env, settings->dir, flags, 0644));
  for (int table = 0; table < PEER_TABLES; table++) {
    char name[2] = {(char)('a' + table), 0};
    DB *db;
    TRY(db_create(&db, env, 0));
    store->tables[table] = db;
    if (table == 1 || table == 2) TRY(db->set_pagesize(db, 512));
    TRY(db->open(db, NULL, name, NULL, DB_BTREE, DB_CREATE | DB_AUTO_COMMIT | DB_THREAD, 0644));
  }
  return PEER_OK;
}

static int checkpoint(void *opaque) {
  struct store *store = opaque;
  TRY(store->env->txn_checkpoint(store->env, 0, 0, DB_FORCE));
  return PEER_OK;
}

static int close_store(void *opaque) {
  struct store *store = opaque;
  TRY(store->env->txn_checkpoint(store->env, 0, 0, DB_FORCE));
  for (int table = 0; table < PEER_TABLES; table++) TRY(store->tables[table]->close(store->tables[table], 0));
  TRY(store->env->close(store->env, 0));
  free(store);
  return PEER_OK;
}

static int make_worker(void *opaque, int is_sync, void **out) {
  struct worker *worker = calloc(1, sizeof *worker);
  if (!worker) return peer_failed("calloc", "no memory");
  *out = worker;
  worker->store = opaque;
  worker->commit_flags = is_sync ? DB_TXN_SYNC : DB_TXN_NOSYNC;
  return PEER_OK;
}

static void retire(void *opaque) {
  struct worker *worker = opaque;
  if (worker->txn) worker->txn->abort(worker->txn);
  free(worker);
}

static int begin(void *opaque, int kind) {
  struct worker *worker = opaque;
  if (kind == PEER_ONE) return PEER_OK; /* A get without a transaction locks its page for itself. */
  TRY(worker->store->env->txn_begin(worker->store->env, NULL, &worker->txn, 0));
  return PEER_OK;
}

static int commit(void *opaque) {
  struct worker *worker = opaque;
  DB_TXN *txn = worker->txn;
  worker->txn = NULL;
  if (txn) TRY(txn->commit(txn, worker->commit_flags));
  return PEER_OK;
}

static int abort_txn(void *opaque) {
  struct worker *worker = opaque;
  DB_TXN *txn = worker->txn;
  worker->txn = NULL;
  if (txn) TRY(txn->abort(txn));
  return PEER_OK;
}

static DBT bytes_of(const void *data, size_t size) {
  DBT dbt;
  memset(&dbt, 0, sizeof dbt);
  dbt.data = (void *)data;
  dbt.size = (u_int32_t)size;
  return dbt;
}

static DBT room_in(void *data, size_t size) {
  DBT dbt = bytes_of(data, 0);
  dbt.ulen = (u_int32_t)size;
  dbt.flags = DB_DBT_USERMEM;
  return dbt;
}

static int get(void *opaque, int table, uint64_t key, void *value, size_t *length) {
  struct worker *worker = opaque;
  DB *db = worker->store->tables[table];
  uint8_t bytes[8];
  DBT k, v;
  peer_key(key, bytes);
  k = bytes_of(bytes, 8);
  v = room_in(value, *length);
  TRY(db->get(db, worker->txn, &k, &v, 0));
  *length = v.size;
  return PEER_OK;
}

static int put(void *opaque, int table, uint64_t key, const void *value, size_t length) {
  struct worker *worker = opaque;
  DB *db = worker->store->tables[table];
  uint8_t bytes[8];
  DBT k, v;
  peer_key(key, bytes);
  k = bytes_of(bytes, 8);
  v = bytes_of(value, length);
  TRY(db->put(db, worker->txn, &k, &v, 0));
  return PEER_OK;
}

static int add(void *opaque, int table, uint64_t key, int64_t delta) {
  struct worker *worker = opaque;
  DB *db = worker->store->tables[table];
  uint8_t bytes[8], old[PEER_VALUE_MAX], record[PEER_VALUE_MAX];
  DBT k, v;
  DBC *cursor;
  int code, closed;
  peer_key(key, bytes);
  TRY(db->cursor(db, worker->txn, &cursor, 0));
  k = bytes_of(bytes, 8);
  v = room_in(old, sizeof old);
  code = cursor->get(cursor, &k, &v, DB_SET | DB_RMW);
  if (code == 0 && peer_added(old, v.size, delta, record) == PEER_OK) {
    v = bytes_of(record, v.size);
    code = cursor->put(cursor, &k, &v, DB_CURRENT);
  }
  closed = cursor->close(cursor);
  TRY(code);
  TRY(closed);
  return PEER_OK;
}

/* Short scans record by record, long ones in bulk: DB_MULTIPLE_KEY fills a buffer with a page's worth of records. */
static int scan(void *opaque, int table, uint64_t from, uint64_t count_max, peer_visit visit, void *context) {
  enum { BULK_BYTES = 256 << 10 };
  struct worker *worker = opaque;
  DB *db = worker->store->tables[table];
  uint8_t bytes[8], value[PEER_VALUE_MAX], *bulk = NULL;
  DBT k, v;
  DBC *cursor;
  int code, closed;
  uint64_t count = 0;
  TRY(db->cursor(db, worker->txn, &cursor, 0));
  peer_key(from, bytes);
  k = room_in(bytes, 8);
  k.size = 8;
  if (count_max <= 1000) {
    v = room_in(value, sizeof value);
    code = cursor->get(cursor, &k, &v, DB_SET_RANGE);
    while (code == 0) {
      if (visit(context, peer_number(bytes), value, v.size) || ++count == count_max) break;
      code = cursor->get(cursor, &k, &v, DB_NEXT);
    }
  } else {
    bulk = malloc(BULK_BYTES);
    v = room_in(bulk, BULK_BYTES);
    code = bulk ? cursor->get(cursor, &k, &v, DB_SET_RANGE | DB_MULTIPLE_KEY) : ENOMEM;
    while (code == 0 && count < count_max) {
      void *at, *key, *data;
      size_t key_length, length;
      DB_MULTIPLE_INIT(at, &v);
      for (;;) {
        DB_MULTIPLE_KEY_NEXT(at, &v, key, key_length, data, length);
        if (!at || key_length != 8 || count == count_max) break;
        count++;
        if (visit(context, peer_number(key), data, length)) count = count_max;
      }
      if (count < count_max) code = cursor->get(cursor, &k, &v, DB_NEXT | DB_MULTIPLE_KEY);
    }
  }
  free(bulk);
  closed = cursor->close(cursor);
  if (code != DB_NOTFOUND) TRY(code);
  TRY(closed);
  return PEER_OK;
}

const struct peer peer_bdb = {version, open_store, close_store, checkpoint, make_worker, retire, begin, commit,
                              abort_txn, get, put, put, add, scan};
