/* cmd_map.c - `egpu map`: the maps of a session that runs, or whose target has ended while its
 * loader lives. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/dump.h"
#include "cli/grid.h"
#include "cli/near.h"
#include "cli/set.h"
#include "cli/typed.h"

enum { MAX_SESSIONS = 256 };

struct opts {
	const char *session; /* pid of the loader, or the directory */
	const char *device;
	const char *order;
	bool json, per_cpu, zeros, bars;
};

static const struct opt options[] = {
	{ 0, "session", OPT_STRING, offsetof(struct opts, session), "PID",
		"loader whose session is meant (default: the newest)" },
	{ 0, "device", OPT_STRING, offsetof(struct opts, device), "N",
		"dump, get: what this device has added, without the others" },
	{ 0, "order", OPT_STRING, offsetof(struct opts, order), "HOW",
		"dump: records of a ring by their `time`, or by `arrival` (the default)" },
	{ 0, "json", OPT_FLAG, offsetof(struct opts, json), NULL, "print JSON" },
	{ 'v', NULL, OPT_FLAG, offsetof(struct opts, per_cpu), NULL,
		"per-CPU maps: every slot, not only the sum" },
	{ 'z', "zeros", OPT_FLAG, offsetof(struct opts, zeros), NULL,
		"arrays: also elements that are all zero" },
	{ 0, "hist", OPT_FLAG, offsetof(struct opts, bars), NULL,
		"dump: numbers with a bar each (histograms of egpu_hist_add always have one)" },
	{ 0 },
};

static bool is_session_of(const char *dir, const char *want)
{
	/* .../egpu-UID-PID-STARTTIME */
	char pid[32];
	const char *base = strrchr(dir, '/');
	snprintf(pid, sizeof(pid), "-%s-", want);
	return !strcmp(dir, want) || (base && strstr(base, pid) > strchr(base, '-'));
}

static struct session *open_session(const char *want)
{
	char(*dirs)[256] = calloc(MAX_SESSIONS, sizeof(*dirs));
	struct session *s = NULL;
	struct diag d = { 0 };
	int n = dirs ? session_list(dirs, MAX_SESSIONS) : 0, at = 0;
	while (want && at < n && at < MAX_SESSIONS && !is_session_of(dirs[at], want))
		at++;
	if (n <= 0)
		say("no session is open: maps live while `egpu run` does, so use `egpu map` beside "
		    "it");
	else if (at >= n)
		say("no session of loader %s; there %s %d other%s", want, n == 1 ? "is" : "are", n,
			n == 1 ? "" : "s");
	else if (session_open(dirs[at], &s, &d))
		say_diag(dirs[at], &d);
	free(dirs);
	return s;
}

static int list(struct session *s, struct dump *d)
{
	static const char *const heads[] = { ">ID", "<NAME", "<TYPE", ">KEY", ">VALUE", ">ENTRIES",
		NULL };
	struct grid *g = grid_new(heads);
	struct buf out = { 0 };
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++) {
		const struct session_map *r = &session_data(s)->maps[id];
		const char *name = dump_map_name(d, id);
		if (!name)
			continue;
		grid_cell(g, "%u", id);
		grid_cell(g, "%s", name);
		grid_cell(g, "%s", dump_type_name(r));
		grid_cell(g, "%u", r->key_size);
		grid_cell(g, "%u", r->value_size);
		grid_cell(g, "%u", dump_max_entries(r));
	}
	grid_print(g, "", &out);
	fputs(out.data ? out.data : "", stdout);
	buf_free(&out);
	grid_free(g);
	return 0;
}

/* The map in which a global variable is, or -1. */
static int find_variable(struct dump *d, const char *want)
{
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++) {
		uint32_t key, value;
		struct typed_var v;
		const struct btf *btf = dump_map_name(d, id) ? dump_btf(d, id, &key, &value) : NULL;
		for (uint32_t i = 0; btf && typed_section_var(btf, value, i, &v); i++)
			if (!strcmp(v.name, want))
				return (int)id;
	}
	return -1;
}

static int find_map(struct dump *d, const char *want)
{
	const char *names[EBPF_MAX_MAPS], *best[3];
	size_t n = 0;
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++) {
		const char *name = dump_map_name(d, id);
		if (name && !strcmp(name, want))
			return (int)id;
		if (name)
			names[n++] = name;
	}
	int holder = find_variable(d, want);
	if (holder >= 0) {
		const char *map = dump_map_name(d, (uint32_t)holder);
		say("'%s' is a global variable of the probe: egpu map get %s %s", want, map, want);
		return -1;
	}
	size_t near = near_any(want, names, n, best, 3);
	say("no map '%s' in this session%s%s%s%s", want, near ? "; nearest: " : " (it has none)",
		near ? best[0] : "", near > 1 ? ", " : "", near > 1 ? best[1] : "");
	return -1;
}

static int dump_map(struct dump *d, uint32_t id, const struct opts *o)
{
	struct dump_options how = { .per_cpu = o->per_cpu, .zeros = o->zeros, .bars = o->bars, .records = true,
		.by_time = o->order && !strcmp(o->order, "time") };
	struct buf out = { 0 };
	struct diag diag = { 0 };
	struct json j;
	json_init(&j, &out, JSON_PRETTY);
	int err = o->json ? dump_one_json(d, id, &how, &j, &diag)
			  : dump_one_text(d, id, &how, &out, &diag);
	fputs(out.data ? out.data : "", stdout);
	if (o->json)
		puts("");
	buf_free(&out);
	return err ? say_diag(dump_map_name(d, id), &diag) : 0;
}

/* A number (decimal or 0x) as little-endian bytes, or hex:BYTES of exactly the key's size. */
static int parse_key(const char *text, uint32_t key_size, uint8_t *key)
{
	char *end;
	if (!strncmp(text, "hex:", 4)) {
		const char *p = text + 4;
		if (strlen(p) != 2 * (size_t)key_size ||
			strspn(p, "0123456789abcdefABCDEF") != strlen(p))
			return -EINVAL;
		for (uint32_t i = 0; i < key_size; i++) {
			char byte[3] = { p[2 * i], p[2 * i + 1], 0 };
			key[i] = (uint8_t)strtoul(byte, NULL, 16);
		}
		return 0;
	}
	errno = 0;
	uint64_t v = *text == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
	if (errno || !*text || *end || key_size > 8)
		return -EINVAL;
	for (uint32_t i = 0; i < key_size; i++)
		key[i] = (uint8_t)(v >> (8 * i));
	bool fits = key_size == 8 || !(v >> (8 * key_size)) ||
		    (*text == '-' && (int64_t)v >= -(1ll << (8 * key_size - 1)));
	return fits ? 0 : -ERANGE;
}

static int no_keys(const char *name, uint32_t type)
{
	if (type == BPF_MAP_TYPE_RINGBUF)
		return say_fail("%s is a ring buffer, which has no keys: egpu map dump %s counts its records", name, name);
	return say_fail("%s has no keys: egpu map %s", name,
		type == BPF_MAP_TYPE_BLOOM_FILTER ? "peek and push ask and change it" : "dump, peek, push and pop show and change it");
}

static int bad_key(const char *text, uint32_t key_size)
{
	if (key_size > 8)
		return say_fail("key '%s' does not fit: give hex: and %u hex digits in memory "
				"order",
			text, 2 * key_size);
	return say_fail("key '%s' does not fit: give a number of %u bytes, or hex: and %u hex "
			"digits in memory order",
		text, key_size, 2 * key_size);
}

static bool is_globals(struct dump *d, uint32_t id)
{
	uint32_t key_type, type = 0;
	const struct btf *btf = dump_btf(d, id, &key_type, &type);
	return btf && type && typed_section_name(btf, type);
}

static int get(struct session *s, struct dump *d, uint32_t id, const char *text)
{
	const struct session_map *row = &session_data(s)->maps[id];
	uint32_t key_size = row->key_size;
	struct buf out = { 0 };
	struct diag diag = { 0 };
	uint8_t *key = calloc(1, key_size + 8);
	int status = 0;
	if (!key)
		return say_fail("out of memory");
	if (!key_size)
		status = no_keys(dump_map_name(d, id), row->type);
	else if (is_globals(d, id) && strcmp(text, "0"))
		status = dump_variable_text(d, id, text, &out, &diag) ? say_diag(dump_map_name(d, id), &diag) : 0;
	else if (parse_key(text, key_size, key))
		status = bad_key(text, key_size);
	else if (dump_value_text(d, id, key, &out, &diag))
		status = say_diag(dump_map_name(d, id), &diag);
	fputs(out.data ? out.data : "", stdout);
	buf_free(&out);
	free(key);
	return status;
}

/* -- set ------------------------------------------------------------------------ */

static int set_failed(const char *name, int err)
{
	if (err == -ETIMEDOUT)
		return say_fail("%s: the target did not take the value within a second; it may "
				"still do so (a new key waits until no kernel runs)",
			name);
	if (err == -EBUSY)
		return say_fail("%s: an earlier write still waits for the target", name);
	if (err == -E2BIG)
		return say_fail("%s: there is no room for this key", name);
	return say_fail("%s: %s", name, strerror(-err));
}

/* A value by its BTF type where the map has one, else a number or hex: as keys are written. */
static int parse_value(struct dump *d, uint32_t id, const struct session_map *row, const char *text,
	uint8_t *value, struct diag *diag)
{
	uint32_t key_type, value_type = 0;
	const struct btf *btf = dump_btf(d, id, &key_type, &value_type);
	struct typed_var var = { .type = value_type, .size = row->value_size };
	if (btf && value_type && strncmp(text, "hex:", 4))
		return set_typed(btf, &var, value, text, diag);
	int err = parse_key(text, row->value_size, value);
	return err ? diag_set(diag, -err,
			     "'%s' is no value of %u bytes: give a number of up to 8 bytes, or hex: "
			     "and %u digits",
			     text, row->value_size, 2 * row->value_size)
		   : 0;
}

static int set_element(struct dump *d, struct map *m, uint32_t id, const char *key_text,
	const char *text)
{
	const struct session_map *row = map_info(m);
	const char *name = dump_map_name(d, id);
	struct diag diag = { 0 };
	uint8_t *key = calloc(1, row->key_size + 8),
		*value = calloc(1, map_value_bytes(m) + row->value_size + 8);
	int status = 0, err = 0;
	if (!key || !value)
		status = say_fail("out of memory");
	else if (!row->key_size)
		status = no_keys(name, row->type);
	else if (parse_key(key_text, row->key_size, key))
		status = bad_key(key_text, row->key_size);
	else if (parse_value(d, id, row, text, value, &diag))
		status = say_diag(name, &diag);
	else if ((err = map_update(m, key, value, BPF_ANY)))
		status = set_failed(name, err);
	free(key);
	free(value);
	return status;
}

/* A variable of .data or .bss: only its own bytes are written. */
static int set_global(struct dump *d, struct map *m, uint32_t id, const char *want, const char *text)
{
	const char *name = dump_map_name(d, id);
	uint32_t key_type, type = 0, key = 0;
	const struct btf *btf = dump_btf(d, id, &key_type, &type);
	struct typed_var var;
	struct diag diag = { 0 };
	for (uint32_t i = 0; btf && typed_section_var(btf, type, i, &var); i++) {
		if (strcmp(var.name, want))
			continue;
		uint8_t *value = calloc(1, var.size + 8);
		int err = value ? set_typed(btf, &var, value, text, &diag)
				: diag_set(&diag, ENOMEM, "out of memory");
		int status = err ? say_diag(want, &diag) : 0;
		if (!err && (err = map_update_part(m, &key, var.offset, value, var.size)))
			status = set_failed(want, err);
		free(value);
		return status;
	}
	return say_fail("%s has no variable '%s'; egpu map dump %s lists them", name, want, name);
}

static int set(struct session *s, struct dump *d, uint32_t id, const char *key, const char *value)
{
	struct diag diag = { 0 };
	struct map *m;
	const struct session_map *row = &session_data(s)->maps[id];
	if (row->flags & BPF_F_RDONLY_PROG)
		return say_fail("%s is read-only data: its values are constants in the kernels",
			dump_map_name(d, id));
	if (map_open(s, id, &m, &diag))
		return say_diag(dump_map_name(d, id), &diag);
	int status = is_globals(d, id) ? set_global(d, m, id, key, value) : set_element(d, m, id, key, value);
	map_close(m);
	return status;
}

/* -- maps without keys -------------------------------------------------------------- */

static int keyless_failed(const char *name, uint32_t type, int err)
{
	if (err == -EOPNOTSUPP && type == BPF_MAP_TYPE_BLOOM_FILTER)
		return say_fail("%s is a Bloom filter, which forgets the values: egpu map peek %s VALUE asks for one", name, name);
	if (err == -ENOENT)
		return say_fail("%s is empty", name);
	if (err == -E2BIG)
		return say_fail("%s is full", name);
	if (err == -ETIMEDOUT)
		return say_fail("%s: no moment without a kernel came within a second; it may still be done", name);
	if (err == -EOPNOTSUPP)
		return say_fail("%s has keys, or is a ring: this is for queues, stacks and Bloom filters", name);
	return set_failed(name, err);
}

static int take(struct session *s, struct dump *d, uint32_t id, bool pop)
{
	struct buf out = { 0 };
	struct diag diag = { 0 };
	int err = dump_peek_text(d, id, pop, &out, &diag);
	fputs(out.data ? out.data : "", stdout);
	buf_free(&out);
	return err ? keyless_failed(dump_map_name(d, id), session_data(s)->maps[id].type, err) : 0;
}

/* Of a Bloom filter `ask` tells whether the value may be in it. */
static int put(struct session *s, struct dump *d, uint32_t id, const char *text, bool ask)
{
	struct diag diag = { 0 };
	struct map *m;
	const char *name = dump_map_name(d, id);
	if (map_open(s, id, &m, &diag))
		return say_diag(name, &diag);
	uint8_t *value = calloc(1, map_info(m)->value_size + 8);
	int status = 0, err;
	if (!value)
		status = say_fail("out of memory");
	else if (ask && map_info(m)->type != BPF_MAP_TYPE_BLOOM_FILTER)
		status = say_fail("%s is no Bloom filter: peek has no value", name);
	else if (parse_value(d, id, map_info(m), text, value, &diag))
		status = say_diag(name, &diag);
	else if (ask && (!(err = map_peek(m, value)) || err == -ENOENT))
		puts(err ? "no" : "maybe");
	else if (ask || (err = map_push(m, value, BPF_ANY)))
		status = keyless_failed(name, map_info(m)->type, err);
	free(value);
	map_close(m);
	return status;
}

static int act(const struct opts *o, const struct opt_rest *rest, struct session *s, struct dump *d)
{
	const char *const *words = (const char *const *)rest->args;
	const char *verb = words[0];
	if (!strcmp(verb, "list"))
		return list(s, d);
	int found = find_map(d, words[1]);
	uint32_t id = (uint32_t)found;
	if (found < 0)
		return EGPU_FAILED;
	if (o->order && (strcmp(verb, "dump") || session_data(s)->maps[id].type != BPF_MAP_TYPE_RINGBUF))
		return say_fail("--order is for egpu map dump of a ring buffer");
	if (!strcmp(verb, "dump"))
		return dump_map(d, id, o);
	if (!strcmp(verb, "pop") || (!strcmp(verb, "peek") && rest->n_args == 2))
		return take(s, d, id, *verb == 'p' && verb[1] == 'o');
	if (!strcmp(verb, "peek") || !strcmp(verb, "push"))
		return put(s, d, id, words[2], !strcmp(verb, "peek"));
	return !strcmp(verb, "get") ? get(s, d, id, words[2]) : set(s, d, id, words[2], words[3]);
}

static bool changes(const char *verb)
{
	return !strcmp(verb, "set") || !strcmp(verb, "push") || !strcmp(verb, "pop");
}

/* Verbs, and how many words may follow. */
static int check_words(const struct opt_rest *rest)
{
	static const struct {
		const char *verb;
		int least, most;
	} verbs[] = { { "list", 0, 0 }, { "dump", 1, 1 }, { "get", 2, 2 }, { "set", 3, 3 }, { "peek", 1, 2 }, { "push", 2, 2 }, { "pop", 1, 1 } };
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(rest->args[0], verbs[i].verb))
			return rest->n_args > verbs[i].least && rest->n_args - 1 <= verbs[i].most
				       ? 0
				       : say_fail("usage: egpu %s", cmd_map.synopsis);
	return say_fail("map: no verb '%s'; usage: egpu %s", rest->args[0], cmd_map.synopsis);
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	if (o->device && (!*o->device || strspn(o->device, "0123456789") != strlen(o->device) ||
				 strlen(o->device) > 4))
		return say_fail("--device: '%s' is no device number", o->device);
	if (o->order && strcmp(o->order, "time") && strcmp(o->order, "arrival"))
		return say_fail("--order: '%s' is no order: time or arrival", o->order);
	if (o->device && changes(rest->args[0]))
		return say_fail("map %s is not for one device: leave --device out", rest->args[0]);
	struct session *s = check_words(rest) ? NULL : open_session(o->session);
	if (!s)
		return EGPU_FAILED;
	struct dump *d = o->device ? dump_new_device(s, (uint32_t)atoi(o->device)) : dump_new(s);
	int status = d ? act(o, rest, s, d) : say_fail("out of memory");
	dump_free(d);
	session_close(s);
	return status;
}

const struct command cmd_map = {
	.name = "map",
	.synopsis = "map [--session PID] list | dump NAME | get NAME KEY | set NAME KEY VALUE | peek NAME [VALUE] | push NAME VALUE | pop NAME",
	.summary = "reads and writes the maps of a run, also while its kernels run",
	.help = "While `egpu run counts.bpf.o -- ./program` runs in another terminal:\n"
		"  egpu map list\n"
		"  egpu map dump counts\n"
		"  egpu map get counts 3            key as a number\n"
		"  egpu map get pairs hex:0100000002000000   key as bytes in memory order\n"
		"  egpu map dump --device 1 counts  what device 1 added\n"
		"  egpu map set counts 3 0          also while kernels count\n"
		"  egpu map set .data threshold 100 a global variable; get .data threshold\n"
		"  egpu map push work 17            a queue, stack or Bloom filter; pop work; peek work\n"
		"  egpu map peek seen 17            whether the Bloom filter `seen` may have it\n"
		"  egpu map dump --order=time events   records that nobody has read yet, which stay\n"
		"Ring buffers have no keys; the run that owns them consumes their records.\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.min_args = 1,
	.max_args = 4,
};
