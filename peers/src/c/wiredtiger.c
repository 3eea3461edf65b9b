/* WiredTiger: snapshot isolation, where a transaction that meets another's change is rolled back and run again. A
 * session and its cursors belong to a worker and are kept. */
#include "peer.h"
#include <wiredtiger.h>

struct store {
  WT_CONNECTION *connection;
};

struct worker {
  WT_SESSION *session;
  WT_CURSOR *cursors[PEER_TABLES];
  const char *commit_settings;
  int is_open;
};

#define TRY(call)                                                              \
  do {                                                                         \
    int code_ = (call);                                                        \
    if (code_ == WT_NOTFOUND) return PEER_NONE;                                \
    if (code_ == WT_ROLLBACK) return PEER_AGAIN;                               \
    if (code_ != 0) return peer_failed(#call, wiredtiger_strerror(code_));     \
  } while (0)

static const char *version(void) { return wiredtiger_version(NULL, NULL, NULL); }

static int open_store(const struct peer_settings *settings, void **out) {
  struct store *store = calloc(1, sizeof *store);
  WT_SESSION *session;
  char text[512];
  if (!store) return peer_failed("calloc", "no memory");
  *out = store;
  snprintf(text, sizeof text,
           "create,cache_size=%lluM,session_max=1000,log=(enabled=true),"
           "transaction_sync=(enabled=false,method=fsync),checkpoint=(log_size=1G,wait=60),"
           "eviction=(threads_min=1,threads_max=2)",
           (unsigned long long)(settings->cache_bytes >> 20));
  TRY(wiredtiger_open(settings->dir, NULL, text, &store->connection));
  TRY(store->connection->open_session(store->connection, NULL, "isolation=snapshot", &session));
  for (int table = 0; table < PEER_TABLES; table++) {
    char name[16];
    snprintf(name, sizeof name, "table:t%d", table);
    TRY(session->create(session, name,
                        settings->is_larger_than_memory ? "key_format=Q,value_format=u,leaf_page_max=4KB"
                                                        : "key_format=Q,value_format=u"));
  }
  TRY(session->close(session, NULL));
  return PEER_OK;
}

static int checkpoint(void *opaque) {
  struct store *store = opaque;
  WT_SESSION *session;
  TRY(store->connection->open_session(store->connection, NULL, NULL, &session));
  TRY(session->checkpoint(session, NULL));
  TRY(session->close(session, NULL));
  return PEER_OK;
}

static int close_store(void *opaque) {
  struct store *store = opaque;
  TRY(store->connection->close(store->connection, NULL));
  free(store);
  return PEER_OK;
}

static int make_worker(void *opaque, int is_sync, void **out) {
  struct store *store = opaque;
  struct worker *worker = calloc(1, sizeof *worker);
  if (!worker) return peer_failed("calloc", "no memory");
  *out = worker;
  worker->commit_settings = is_sync ? "sync=on" : "sync=off";
  TRY(store->connection->open_session(store->connection, NULL, "isolation=snapshot", &worker->session));
  for (int table = 0; table < PEER_TABLES; table++) {
    char name[16];
    snprintf(name, sizeof name, "table:t%d", table);
    TRY(worker->session->open_cursor(worker->session, name, NULL, NULL, &worker->cursors[table]));
  }
  return PEER_OK;
}

static void retire(void *opaque) {
  struct worker *worker = opaque;
  if (worker->session) worker->session->close(worker->session, NULL);
  free(worker);
}

static int begin(void *opaque, int kind) {
  struct worker *worker = opaque;
  if (kind == PEER_ONE) return PEER_OK; /* A search outside of a transaction is one by itself. */
  TRY(worker->session->begin_transaction(worker->session, NULL));
  worker->is_open = 1;
  return PEER_OK;
}

static int commit(void *opaque) {
  struct worker *worker = opaque;
  if (!worker->is_open) return PEER_OK;
  worker->is_open = 0;
  TRY(worker->session->commit_transaction(worker->session, worker->commit_settings));
  return PEER_OK;
}

static int abort_txn(void *opaque) {
  struct worker *worker = opaque;
  if (!worker->is_open) return PEER_OK;
  worker->is_open = 0;
  TRY(worker->session->rollback_transaction(worker->session, NULL));
  return PEER_OK;
}

static int get(void *opaque, int table, uint64_t key, void *value, size_t *length) {
  struct worker *worker = opaque;
  WT_CURSOR *cursor = worker->cursors[table];
  WT_ITEM item;
  int code;
  cursor->set_key(cursor, key);
  TRY(cursor->search(cursor));
  TRY(cursor->get_value(cursor, &item));
  code = peer_copy(item.data, item.size, value, length);
  TRY(cursor->reset(cursor));
  return code;
}

static int put(void *opaque, int table, uint64_t key, const void *value, size_t length) {
  struct worker *worker = opaque;
  WT_CURSOR *cursor = worker->cursors[table];
  WT_ITEM item;
  memset(&item, 0, sizeof item);
  item.data = value;
  item.size = length;
  cursor->set_key(cursor, key);
  cursor->set_value(cursor, &item);
  TRY(cursor->insert(cursor)); /* Overwrites, and keeps no position. */
  return PEER_OK;
}

static int add(void *opaque, int table, uint64_t key, int64_t delta) {
  struct worker *worker = opaque;
  WT_CURSOR *cursor = worker->cursors[table];
  WT_ITEM item;
  uint8_t record[PEER_VALUE_MAX];
  cursor->set_key(cursor, key);
  TRY(cursor->search(cursor));
  TRY(cursor->get_value(cursor, &item));
  if (peer_added(item.data, item.size, delta, record) != PEER_OK) return PEER_FAILED;
  item.data = record;
  cursor->set_value(cursor, &item);
  TRY(cursor->update(cursor));
  TRY(cursor->reset(cursor));
  return PEER_OK;
}

static int scan(void *opaque, int table, uint64_t from, uint64_t count_max, peer_visit visit, void *context) {
  struct worker *worker = opaque;
  WT_CURSOR *cursor = worker->cursors[table];
  int near, code;
  cursor->set_key(cursor, from);
  code = cursor->search_near(cursor, &near);
  if (code == 0 && near < 0) code = cursor->next(cursor);
  for (uint64_t count = 0; code == 0 && count < count_max; count++) {
    uint64_t key;
    WT_ITEM item;
    TRY(cursor->get_key(cursor, &key));
    TRY(cursor->get_value(cursor, &item));
    if (visit(context, key, item.data, item.size) || count + 1 == count_max) break;
    code = cursor->next(cursor);
  }
  cursor->reset(cursor);
  if (code != WT_NOTFOUND) TRY(code);
  return PEER_OK;
}

const struct peer peer_wiredtiger = {version, open_store, close_store, checkpoint, make_worker, retire, begin, commit,
                                     abort_txn, get, put, put, add, scan};
