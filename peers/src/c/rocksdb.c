/* RocksDB: TransactionDB, which locks keys when they are written or read for a change. One column family; the first
 * byte of a key is its table, as MyRocks has it. Readers take a snapshot and no transaction. */
#include "peer.h"
#include <rocksdb/c.h>

enum { KEY_BYTES = 9 };

struct store {
  rocksdb_transactiondb_t *db;
  rocksdb_options_t *options;
  rocksdb_transactiondb_options_t *txn_db_options;
  rocksdb_transaction_options_t *txn_options;
};

struct worker {
  struct store *store;
  rocksdb_writeoptions_t *write_options;
  rocksdb_readoptions_t *read_options;
  rocksdb_readoptions_t *scan_options;
  const rocksdb_snapshot_t *snapshot;
  rocksdb_transaction_t *txn; /* Kept and begun again. */
  int is_writing;
};

/* Consumes the text. */
static int told(const char *call, char *why) {
  int code;
  if (!why) return PEER_OK;
  if (!strncmp(why, "Operation timed out", 19) || !strncmp(why, "Resource busy", 13) ||
      !strncmp(why, "Operation failed. Try again.", 28)) {
    code = PEER_AGAIN;
  } else {
    code = peer_failed(call, why);
  }
  rocksdb_free(why);
  return code;
}

static const char *version(void) { return PEER_ROCKSDB_VERSION; }

static int open_store(const struct peer_settings *settings, void **out) {
  struct store *store = calloc(1, sizeof *store);
  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rocksdb_options_t *options = rocksdb_options_create();
  char *why = NULL;
  if (!store) return peer_failed("calloc", "no memory");
  *out = store;
  store->options = options;
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_increase_parallelism(options, 2);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
  rocksdb_options_set_bytes_per_sync(options, 1 << 20);
  rocksdb_options_set_wal_bytes_per_sync(options, 0);
  /* With little memory, the memtables have an eighth of it. */
  rocksdb_options_set_write_buffer_size(
      options, settings->is_larger_than_memory ? settings->cache_bytes / 8 : (size_t)(128 << 20));
  rocksdb_options_set_max_write_buffer_number(options, settings->is_larger_than_memory ? 2 : 4);
  rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
  rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(settings->cache_bytes));
  rocksdb_block_based_options_set_format_version(table, 5);
  rocksdb_options_set_block_based_table_factory(options, table);
  store->txn_db_options = rocksdb_transactiondb_options_create();
  store->txn_options = rocksdb_transaction_options_create();
  store->db = rocksdb_transactiondb_open(options, store->txn_db_options, settings->dir, &why);
  return told("open", why);
}

static int checkpoint(void *opaque) {
  struct store *store = opaque;
  rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
  char *why = NULL;
  rocksdb_flushoptions_set_wait(options, 1);
  rocksdb_transactiondb_flush(store->db, options, &why);
  rocksdb_flushoptions_destroy(options);
  return told("flush", why);
}

static int close_store(void *opaque) {
  struct store *store = opaque;
  int code = checkpoint(opaque);
  rocksdb_transactiondb_close(store->db);
  rocksdb_transaction_options_destroy(store->txn_options);
  rocksdb_transactiondb_options_destroy(store->txn_db_options);
  rocksdb_options_destroy(store->options);
  free(store);
  return code;
}

static int make_worker(void *opaque, int is_sync, void **out) {
  struct worker *worker = calloc(1, sizeof *worker);
  if (!worker) return peer_failed("calloc", "no memory");
  *out = worker;
  worker->store = opaque;
  worker->write_options = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(worker->write_options, (unsigned char)(is_sync != 0));
  worker->read_options = rocksdb_readoptions_create();
  worker->scan_options = rocksdb_readoptions_create();
  rocksdb_readoptions_set_readahead_size(worker->scan_options, 0); /* Grows by itself. */
  return PEER_OK;
}

static void forget_snapshot(struct worker *worker) {
  if (!worker->snapshot) return;
  rocksdb_readoptions_set_snapshot(worker->read_options, NULL);
  rocksdb_readoptions_set_snapshot(worker->scan_options, NULL);
  rocksdb_transactiondb_release_snapshot(worker->store->db, worker->snapshot);
  worker->snapshot = NULL;
}

static void retire(void *opaque) {
  struct worker *worker = opaque;
  forget_snapshot(worker);
  if (worker->txn) rocksdb_transaction_destroy(worker->txn);
  rocksdb_writeoptions_destroy(worker->write_options);
  rocksdb_readoptions_destroy(worker->read_options);
  rocksdb_readoptions_destroy(worker->scan_options);
  free(worker);
}

static int begin(void *opaque, int kind) {
  struct worker *worker = opaque;
  worker->is_writing = kind == PEER_WRITE;
  if (kind == PEER_WRITE) {
    worker->txn = rocksdb_transaction_begin(worker->store->db, worker->write_options, worker->store->txn_options,
                                            worker->txn);
  } else if (kind == PEER_READ) {
    worker->snapshot = rocksdb_transactiondb_create_snapshot(worker->store->db);
    rocksdb_readoptions_set_snapshot(worker->read_options, worker->snapshot);
    rocksdb_readoptions_set_snapshot(worker->scan_options, worker->snapshot);
  }
  return PEER_OK;
}

static int commit(void *opaque) {
  struct worker *worker = opaque;
  char *why = NULL;
  forget_snapshot(worker);
  if (worker->is_writing) rocksdb_transaction_commit(worker->txn, &why);
  return told("commit", why);
}

static int abort_txn(void *opaque) {
  struct worker *worker = opaque;
  char *why = NULL;
  forget_snapshot(worker);
  if (worker->is_writing) rocksdb_transaction_rollback(worker->txn, &why);
  return told("rollback", why);
}

static const char *key_of(int table, uint64_t key, char bytes[KEY_BYTES]) {
  bytes[0] = (char)table;
  peer_key(key, (uint8_t *)bytes + 1);
  return bytes;
}

static int get(void *opaque, int table, uint64_t key, void *value, size_t *length) {
  struct worker *worker = opaque;
  char bytes[KEY_BYTES], *why = NULL;
  rocksdb_pinnableslice_t *slice;
  const char *found;
  size_t found_length;
  int code;
  key_of(table, key, bytes);
  slice = worker->is_writing
              ? rocksdb_transaction_get_pinned(worker->txn, worker->read_options, bytes, KEY_BYTES, &why)
              : rocksdb_transactiondb_get_pinned(worker->store->db, worker->read_options, bytes, KEY_BYTES, &why);
  if (why) return told("get", why);
  if (!slice) return PEER_NONE;
  found = rocksdb_pinnableslice_value(slice, &found_length);
  code = found ? peer_copy(found, found_length, value, length) : PEER_NONE;
  rocksdb_pinnableslice_destroy(slice);
  return code;
}

static int put(void *opaque, int table, uint64_t key, const void *value, size_t length) {
  struct worker *worker = opaque;
  char bytes[KEY_BYTES], *why = NULL;
  rocksdb_transaction_put(worker->txn, key_of(table, key, bytes), KEY_BYTES, value, length, &why);
  return told("put", why);
}

static int add(void *opaque, int table, uint64_t key, int64_t delta) {
  struct worker *worker = opaque;
  char bytes[KEY_BYTES], *why = NULL;
  uint8_t record[PEER_VALUE_MAX];
  rocksdb_pinnableslice_t *slice;
  const char *found;
  size_t length = 0;
  int code;
  key_of(table, key, bytes);
  slice = rocksdb_transaction_get_pinned_for_update(worker->txn, worker->read_options, bytes, KEY_BYTES, 1, &why);
  if (why) return told("get for update", why);
  if (!slice) return PEER_NONE;
  found = rocksdb_pinnableslice_value(slice, &length);
  code = found ? peer_added(found, length, delta, record) : PEER_NONE;
  rocksdb_pinnableslice_destroy(slice);
  if (code != PEER_OK) return code;
  rocksdb_transaction_put(worker->txn, bytes, KEY_BYTES, (char *)record, length, &why);
  return told("put", why);
}

static int scan(void *opaque, int table, uint64_t from, uint64_t count_max, peer_visit visit, void *context) {
  struct worker *worker = opaque;
  char bytes[KEY_BYTES], *why = NULL;
  rocksdb_iterator_t *iterator =
      worker->is_writing ? rocksdb_transaction_create_iterator(worker->txn, worker->scan_options)
                         : rocksdb_transactiondb_create_iterator(worker->store->db, worker->scan_options);
  rocksdb_iter_seek(iterator, key_of(table, from, bytes), KEY_BYTES);
  for (uint64_t count = 0; count < count_max && rocksdb_iter_valid(iterator); count++) {
    size_t key_length, length;
    const char *key = rocksdb_iter_key(iterator, &key_length);
    const char *value;
    if (key_length != KEY_BYTES || key[0] != (char)table) break;
    value = rocksdb_iter_value(iterator, &length);
    if (visit(context, peer_number(key + 1), value, length) || count + 1 == count_max) break;
    rocksdb_iter_next(iterator);
  }
  rocksdb_iter_get_error(iterator, &why);
  rocksdb_iter_destroy(iterator);
  return told("scan", why);
}

const struct peer peer_rocksdb = {version, open_store, close_store, checkpoint, make_worker, retire, begin, commit,
                                  abort_txn, get, put, put, add, scan};
