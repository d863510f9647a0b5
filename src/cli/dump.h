/* dump.h - a session's maps, typed by their BTF, as text and as JSON. */
#ifndef EGPU_CLI_DUMP_H
#define EGPU_CLI_DUMP_H

#include <bpf/btf.h>

#include "cli/json.h"
#include "map/map.h"
#include "map/session.h"

struct dump;

/* The session must outlive it. NULL when memory is out. */
struct dump *dump_new(struct session *s);
/* The same of one device only; the aggregate's JSON has these under "devices" where there are several. */
struct dump *dump_new_device(struct session *s, uint32_t device);
void dump_free(struct dump *d);

/* What a report should call map `id`: a section's name for globals (".bss"), else the map's. NULL:
 * no such map, or one of egpu's own, or read-only data. */
const char *dump_map_name(struct dump *d, uint32_t id);
/* BTF of map `id`, with its key and value types; NULL without. */
const struct btf *dump_btf(struct dump *d, uint32_t id, uint32_t *key_type, uint32_t *value_type);

struct dump_options {
	bool per_cpu; /* every CPU slot of per-CPU maps, instead of the sum */
	bool zeros;   /* also elements of arrays that are all zero */
	bool records; /* ring buffers: the records that wait there, instead of what this process has taken */
	bool by_time; /* these in the order of time, instead of that of arrival */
	bool bars;    /* text: numbers with a bar each, as histograms always have */
};

/* All maps of the session, one paragraph each. */
void dump_text(struct dump *d, const struct dump_options *o, struct buf *out);
/* A JSON object: map name -> its description and contents. */
void dump_json(struct dump *d, const struct dump_options *o, struct json *j);
/* One map. -errno with diag. */
int dump_one_text(struct dump *d, uint32_t id, const struct dump_options *o, struct buf *out,
	struct diag *diag);
int dump_one_json(struct dump *d, uint32_t id, const struct dump_options *o, struct json *j,
	struct diag *diag);
/* The value of one key, given as bytes of key_size; one line. */
int dump_value_text(
	struct dump *d, uint32_t id, const void *key, struct buf *out, struct diag *diag);

/* The value of a global variable of section `id` (".bss"); one line. */
int dump_variable_text(struct dump *d, uint32_t id, const char *name, struct buf *out, struct diag *diag);
/* QUEUE, STACK: the value that is popped next, which `pop` takes out; one line. -errno, without words. */
int dump_peek_text(struct dump *d, uint32_t id, bool pop, struct buf *out, struct diag *diag);

/* Takes what arrived in the ring buffers that programs wrote; counts records and keeps the first
 * few for the dump. */
void dump_drain_rings(struct dump *d);

/* Records lost in rings and insertions refused by full hash maps and queues so far, over all maps but egpu's own.
 */
uint64_t dump_records_lost(struct dump *d);
uint64_t dump_insertions_refused(struct dump *d);

const char *dump_type_name(const struct session_map *r);
/* Its keys: fewer than its row's max_entries where each thread has an element. */
uint32_t dump_max_entries(const struct session_map *r);

#endif
