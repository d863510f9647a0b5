/* The text form of a fragment:
 *
 *	fragment 1
 *	name count_loads
 *	point load            one of the points, or none
 *	warp 0
 *	opcode fma.rn         at point insn only: what opcodes begin with
 *	max_insns 123
 *	local_bytes 0
 *	slot 1                where it is read
 *	sampled 1             where it runs in chosen warps only
 *	anywhere 1            where it may run anywhere in its basic block
 *	fields site address   names of ebpf_fields[]
 *	maps 0 3              ids
 *	gathered address      where there are any
 *	param 2 8             index and bytes, a line each, by rising index
 *	func __egpu_f 120     name and length of the text that follows, then a newline
 *	<120 bytes>
 *	body 80
 *	<80 bytes>
 *	words 2
 *	repeat 90             where there is one
 *	<90 bytes>
 *	batch 8               where there is one: most places
 *	when space eq 1       field, test and value, a line each
 *	begin 70
 *	<70 bytes>            then item, like, end and apart, in the same way; like and apart may be left out
 *	end
 *
 * It is read inside the target process, from shared memory: no number is used before it was compared with what is left.
 */
#include "bpf/fragment.h"

#include <errno.h>
#include <string.h>

enum { MAX_NAME = 255, MAX_FUNCS = 1024 };

static void put_number(struct buf *out, uint64_t n)
{
	char digits[20];
	size_t at = sizeof(digits);
	do
		digits[--at] = (char)('0' + n % 10);
	while (n /= 10);
	buf_add(out, digits + at, sizeof(digits) - at);
}

static void put_line(struct buf *out, const char *word, uint64_t n)
{
	buf_puts(out, word);
	buf_puts(out, " ");
	put_number(out, n);
	buf_puts(out, "\n");
}

static void put_text(struct buf *out, const char *text)
{
	buf_puts(out, text);
	buf_puts(out, "\n");
}

static void put_fields(struct buf *out, const char *word, uint64_t fields)
{
	buf_puts(out, word);
	for (int i = 0; i < EBPF_FIELD_COUNT; i++)
		if (fields >> i & 1) {
			buf_puts(out, " ");
			buf_puts(out, ebpf_fields[i].name);
		}
	buf_puts(out, "\n");
}

static const char *const tests[EBPF_TESTS] = { "eq", "ne", "lt", "le", "gt", "ge", "any", "none" };

/* The texts of a batch, in their order. */
struct part {
	const char *word;
	size_t at;
	bool optional;
};
static const struct part parts[] = {
	{ "begin", offsetof(struct ebpf_batch, begin), false },
	{ "item", offsetof(struct ebpf_batch, item), false },
	{ "like", offsetof(struct ebpf_batch, like), true },
	{ "end", offsetof(struct ebpf_batch, end), false },
	{ "apart", offsetof(struct ebpf_batch, apart), true },
};
enum { N_PARTS = sizeof(parts) / sizeof(parts[0]) };

static const char **part_of(struct ebpf_batch *b, const struct part *p)
{
	return (const char **)((char *)b + p->at);
}

static void put_when(struct buf *out, const struct ebpf_when *when, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++) {
		buf_puts(out, "when ");
		buf_puts(out, ebpf_fields[when[k].field].name);
		buf_puts(out, " ");
		buf_puts(out, tests[when[k].test]);
		buf_puts(out, " ");
		put_number(out, when[k].value);
		buf_puts(out, "\n");
	}
}

static void put_batch(struct buf *out, const struct ebpf_batch *batch)
{
	struct ebpf_batch b = *batch;
	buf_puts(out, "batch ");
	put_number(out, b.most);
	buf_puts(out, "\n");
	put_when(out, b.when, b.n_when);
	for (int k = 0; k < N_PARTS; k++) {
		const char *text = *part_of(&b, &parts[k]);
		if (!text)
			continue;
		put_line(out, parts[k].word, strlen(text));
		put_text(out, text);
	}
}

void ebpf_fragment_print(const struct ebpf_fragment *f, struct buf *out)
{
	buf_puts(out, "fragment 1\nname ");
	put_text(out, f->name);
	buf_puts(out, "point ");
	put_text(out, ebpf_point_name(f->point));
	put_line(out, "warp", f->warp);
	if (f->opcode) {
		buf_puts(out, "opcode ");
		put_text(out, f->opcode);
	}
	put_line(out, "max_insns", f->max_insns);
	put_line(out, "local_bytes", f->local_bytes);
	if (f->slot)
		put_line(out, "slot", 1);
	if (f->sampled)
		put_line(out, "sampled", 1);
	if (f->anywhere)
		put_line(out, "anywhere", 1);
	put_fields(out, "fields", f->fields);
	buf_puts(out, "maps");
	for (int i = 0; i < 64; i++)
		if (f->maps >> i & 1) {
			buf_puts(out, " ");
			put_number(out, (uint64_t)i);
		}
	buf_puts(out, "\n");
	if (f->gathered)
		put_fields(out, "gathered", f->gathered);
	for (uint32_t i = 0; i < f->n_params; i++) {
		buf_puts(out, "param ");
		put_number(out, f->params[i].index);
		buf_puts(out, " ");
		put_number(out, f->params[i].bytes);
		buf_puts(out, "\n");
	}
	for (uint32_t i = 0; i < f->n_funcs; i++) {
		buf_puts(out, "func ");
		buf_puts(out, f->funcs[i].name);
		buf_puts(out, " ");
		put_number(out, strlen(f->funcs[i].text));
		buf_puts(out, "\n");
		put_text(out, f->funcs[i].text);
	}
	put_when(out, f->when, f->n_when);
	put_line(out, "body", strlen(f->body));
	put_text(out, f->body);
	if (f->repeat) {
		put_line(out, "words", f->words);
		put_line(out, "repeat", strlen(f->repeat));
		put_text(out, f->repeat);
	}
	if (f->batch)
		put_batch(out, f->batch);
	buf_puts(out, "end\n");
}

/* -- lines by target -- */

enum line_kind { LINE_PLAIN, LINE_IF, LINE_ELIF, LINE_ELSE, LINE_ENDIF, LINE_BAD };

/* Reads digits at *p; false without any. */
static bool line_number(const char **p, uint32_t *out)
{
	const char *from = *p;
	for (*out = 0; **p >= '0' && **p <= '9' && *out < 10000; (*p)++)
		*out = *out * 10 + (uint32_t)(**p - '0');
	return *p > from;
}

/* " ptx 7.0 sm 80" up to the end of the line. */
static bool line_condition(const char *p, uint32_t *version, uint32_t *sm)
{
	*version = *sm = 0;
	if (!strncmp(p, " ptx ", 5)) {
		uint32_t major, minor;
		p += 5;
		if (!line_number(&p, &major) || *p++ != '.' || !line_number(&p, &minor))
			return false;
		*version = major * 100 + minor;
	}
	if (!strncmp(p, " sm ", 4)) {
		p += 4;
		if (!line_number(&p, sm))
			return false;
	}
	return *p == '\n' && (*version || *sm);
}

/* What the line at p is, and the least version and target that it asks for. */
static enum line_kind line_kind(const char *p, uint32_t *version, uint32_t *sm)
{
	if (*p != '#')
		return LINE_PLAIN;
	if (!strncmp(p, "#else\n", 6))
		return LINE_ELSE;
	if (!strncmp(p, "#endif\n", 7))
		return LINE_ENDIF;
	if (!strncmp(p, "#if", 3) && line_condition(p + 3, version, sm))
		return LINE_IF;
	if (!strncmp(p, "#elif", 5) && line_condition(p + 5, version, sm))
		return LINE_ELIF;
	return LINE_BAD;
}

static const char *line_end(const char *p)
{
	const char *end = strchr(p, '\n');
	return end ? end + 1 : p + strlen(p);
}

void ebpf_fragment_text(const char *text, uint32_t version, uint32_t sm, struct buf *out)
{
	bool taken = true, any = false; /* this part is; some part was */
	for (const char *p = text, *end; *p; p = end) {
		uint32_t min_version = 0, min_sm = 0;
		enum line_kind kind = line_kind(p, &min_version, &min_sm);
		end = line_end(p);
		if (kind == LINE_PLAIN && taken)
			buf_add(out, p, (size_t)(end - p));
		if (kind == LINE_IF)
			any = false;
		if (kind == LINE_IF || kind == LINE_ELIF || kind == LINE_ELSE) {
			taken = !any && version >= min_version && sm >= min_sm;
			any |= taken;
		} else if (kind != LINE_PLAIN) {
			taken = true;
		}
	}
}

/* #if, any number of #elif, perhaps #else, #endif. */
static bool lines_ok(const char *text)
{
	enum line_kind last = LINE_ENDIF;
	for (const char *p = text; *p; p = line_end(p)) {
		uint32_t version, sm;
		enum line_kind kind = line_kind(p, &version, &sm);
		if (kind == LINE_PLAIN)
			continue;
		if (kind == LINE_BAD || (kind == LINE_IF) != (last == LINE_ENDIF))
			return false;
		if (last == LINE_ELSE && kind != LINE_ENDIF)
			return false;
		last = kind;
	}
	return last == LINE_ENDIF;
}

/* -- reading -- */

struct reader {
	const char *at, *end;
	uint32_t line;
	struct arena *arena;
	struct diag *d;
};

static int bad(struct reader *r, const char *why)
{
	return diag_set_at(r->d, EINVAL, r->line, 0, "fragment: %s", why);
}

/* Takes `word` if the text continues with it. */
static bool take(struct reader *r, const char *word)
{
	size_t n = strlen(word);
	if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n))
		return false;
	r->at += n;
	if (n && word[n - 1] == '\n')
		r->line++;
	return true;
}

static bool take_number(struct reader *r, uint64_t max, uint64_t *out)
{
	uint64_t n = 0;
	const char *from = r->at;
	for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
		uint64_t digit = (uint64_t)(*r->at - '0');
		if (n > (max - digit) / 10 || digit > max)
			return false;
		n = n * 10 + digit;
	}
	*out = n;
	return r->at > from;
}

/* The characters up to a blank or the end of the line; none of them a control character. */
static bool take_word(struct reader *r, const char **word, size_t *len)
{
	const char *from = r->at;
	while (r->at < r->end && *r->at > ' ' && *r->at < 0x7f)
		r->at++;
	*word = from;
	*len = (size_t)(r->at - from);
	return *len > 0 && *len <= MAX_NAME;
}

static int take_line_number(struct reader *r, const char *word, uint64_t max, uint64_t *out)
{
	if (!take(r, word) || !take(r, " ") || !take_number(r, max, out) || !take(r, "\n"))
		return diag_set_at(r->d, EINVAL, r->line, 0, "fragment: no valid line '%s'", word);
	return 0;
}

static int read_opcode(struct reader *r, struct ebpf_fragment *f)
{
	const char *word;
	size_t len;
	if (!take(r, "opcode "))
		return 0;
	if (f->point != EBPF_POINT_INSN || !take_word(r, &word, &len) || !take(r, "\n"))
		return bad(r, "no valid opcode");
	f->opcode = arena_strndup(r->arena, word, len);
	return f->opcode ? 0 : -ENOMEM;
}

static int read_head(struct reader *r, struct ebpf_fragment *f)
{
	const char *word;
	size_t len;
	if (!take(r, "fragment 1\n"))
		return bad(r, "not a fragment of version 1");
	if (!take(r, "name ") || !take_word(r, &word, &len) || !take(r, "\n"))
		return bad(r, "no valid name");
	f->name = arena_strndup(r->arena, word, len);
	if (!f->name)
		return -ENOMEM;
	if (!take(r, "point ") || !take_word(r, &word, &len) || !take(r, "\n"))
		return bad(r, "no valid point");
	f->point = ebpf_point_by_name(word, (uint32_t)len);
	if (f->point == EBPF_POINT_NONE && (len != 4 || memcmp(word, "none", 4)))
		return bad(r, "unknown point");
	uint64_t warp, insns, local;
	int err = take_line_number(r, "warp", 1, &warp);
	if (!err)
		err = read_opcode(r, f);
	if (!err)
		err = take_line_number(r, "max_insns", UINT32_MAX, &insns);
	if (!err)
		err = take_line_number(r, "local_bytes", UINT32_MAX, &local);
	if (err)
		return err;
	f->warp = warp;
	f->max_insns = (uint32_t)insns;
	f->local_bytes = (uint32_t)local;
	f->slot = take(r, "slot 1\n");
	f->sampled = take(r, "sampled 1\n");
	f->anywhere = take(r, "anywhere 1\n");
	return 0;
}

static int field_by_name(const char *name, size_t len)
{
	for (int i = 0; i < EBPF_FIELD_COUNT; i++)
		if (strlen(ebpf_fields[i].name) == len && !memcmp(ebpf_fields[i].name, name, len))
			return i;
	return -1;
}

static int read_fields(struct reader *r, uint32_t context, uint64_t *out)
{
	while (take(r, " ")) {
		const char *word;
		size_t len;
		int i = take_word(r, &word, &len) ? field_by_name(word, len) : -1;
		if (i < 0 || !(ebpf_fields[i].contexts >> context & 1))
			return bad(r, "a field that its point does not have");
		*out |= 1ull << i;
	}
	return take(r, "\n") ? 0 : bad(r, "no fields");
}

/* What lanes hand over, in the memory that was counted for it. */
static int read_gathered(struct reader *r, struct ebpf_fragment *f)
{
	if (!take(r, "gathered"))
		return 0;
	if (!f->warp)
		return bad(r, "a thread's program that gathers");
	int err = read_fields(r, ebpf_point_context(f->point, false), &f->gathered);
	if (!err && ((f->gathered & EBPF_COORDINATES) || ebpf_lane_field_missing(f->gathered, f->point) >= 0))
		err = bad(r, "a field that lanes do not hand over");
	if (!err && f->local_bytes < ebpf_lane_bytes(f->gathered))
		err = bad(r, "less local memory than it gathers");
	return err;
}

static int read_sets(struct reader *r, struct ebpf_fragment *f)
{
	if (!take(r, "fields"))
		return bad(r, "no fields");
	int err = read_fields(r, ebpf_point_context(f->point, f->warp), &f->fields);
	if (err)
		return err;
	if (!take(r, "maps"))
		return bad(r, "no maps");
	while (take(r, " ")) {
		uint64_t id;
		if (!take_number(r, 63, &id))
			return bad(r, "a map id that is not below 64");
		f->maps |= 1ull << id;
	}
	if (!take(r, "\n"))
		return bad(r, "text after the maps");
	return read_gathered(r, f);
}

static int read_params(struct reader *r, struct ebpf_fragment *f)
{
	enum ebpf_context ctx = ebpf_point_context(f->point, f->warp);
	f->params = arena_array(r->arena, EBPF_PARAM_COUNT, sizeof(*f->params));
	if (!f->params)
		return -ENOMEM;
	while (take(r, "param ")) {
		uint64_t index, bytes;
		if (ctx != EBPF_CONTEXT_ENTRY && ctx != EBPF_CONTEXT_EXIT)
			return bad(r, "a parameter where the point has none");
		if (!take_number(r, EBPF_PARAM_COUNT - 1, &index) || !take(r, " ") ||
			!take_number(r, 8, &bytes) || !take(r, "\n"))
			return bad(r, "no valid parameter");
		if (!bytes || (bytes & (bytes - 1)))
			return bad(r, "a parameter of other than 1, 2, 4 or 8 bytes");
		if (f->n_params && index <= f->params[f->n_params - 1].index)
			return bad(r, "parameters out of order");
		f->params[f->n_params++] = (struct ebpf_fragment_param){ (uint32_t)index,
			(uint32_t)bytes };
	}
	return 0;
}

/* `len` bytes and a newline, as a string of their own. */
static int read_text(struct reader *r, const char **out)
{
	uint64_t len;
	if (!take(r, " ") || !take_number(r, SIZE_MAX / 2, &len) || !take(r, "\n"))
		return bad(r, "no valid length of a text");
	if (len > (uint64_t)(r->end - r->at) || memchr(r->at, 0, len))
		return bad(r, "a text that is cut short or holds a zero byte");
	char *text = arena_strndup(r->arena, r->at, len);
	if (!text)
		return -ENOMEM;
	for (uint64_t i = 0; i < len; i++)
		r->line += text[i] == '\n';
	r->at += len;
	if (!take(r, "\n"))
		return bad(r, "a text longer than its length says");
	if (!lines_ok(text))
		return bad(r, "a text whose #if lines do not fit together");
	*out = text;
	return 0;
}

/* Names of ours only: a function must not take the place of one of the kernel's. */
static bool func_name_ok(const char *name, size_t len)
{
	if (len < 8 || memcmp(name, "__egpu_", 7))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
			    (name[i] >= '0' && name[i] <= '9') || name[i] == '_' || name[i] == '$'))
			return false;
	return true;
}

static int read_funcs(struct reader *r, struct ebpf_fragment *f)
{
	size_t cap = 0;
	while (take(r, "func ")) {
		const char *word;
		size_t len;
		if (f->n_funcs >= MAX_FUNCS)
			return bad(r, "too many functions");
		if (!take_word(r, &word, &len) || !func_name_ok(word, len))
			return bad(r, "no valid function name");
		f->funcs = arena_grow(r->arena, f->funcs, f->n_funcs, &cap, sizeof(*f->funcs));
		if (!f->funcs)
			return -ENOMEM;
		struct ebpf_fragment_func *func = &f->funcs[f->n_funcs++];
		func->name = arena_strndup(r->arena, word, len);
		if (!func->name)
			return -ENOMEM;
		int err = read_text(r, &func->text);
		if (err)
			return err;
	}
	return 0;
}

enum { MAX_WHEN = 64, MAX_PLACES = 1024 };

static int read_when(struct reader *r, struct ebpf_when *out)
{
	const char *word;
	size_t len;
	uint64_t value;
	int field = take_word(r, &word, &len) ? field_by_name(word, len) : -1, test = -1;
	if (field < 0 || !take(r, " ") || !take_word(r, &word, &len))
		return bad(r, "no valid condition");
	for (int k = 0; k < EBPF_TESTS; k++)
		if (strlen(tests[k]) == len && !memcmp(tests[k], word, len))
			test = k;
	if (test < 0 || !take(r, " ") || !take_number(r, UINT32_MAX, &value) || !take(r, "\n"))
		return bad(r, "no valid condition");
	*out = (struct ebpf_when){ (enum ebpf_field)field, (enum ebpf_test)test, (uint32_t)value };
	return 0;
}

static int read_whens(struct reader *r, struct ebpf_when **when, uint32_t *n)
{
	int err = 0;
	*when = arena_array(r->arena, MAX_WHEN, sizeof(**when));
	if (!*when)
		return -ENOMEM;
	while (!err && take(r, "when "))
		err = *n < MAX_WHEN ? read_when(r, &(*when)[(*n)++]) : bad(r, "too many conditions");
	return err;
}

static int read_batch(struct reader *r, struct ebpf_fragment *f)
{
	uint64_t most;
	int err = 0;
	if (!take(r, "batch "))
		return 0;
	struct ebpf_batch *b = arena_alloc(r->arena, sizeof(*b));
	if (!take_number(r, MAX_PLACES, &most) || !most || !take(r, "\n"))
		return bad(r, "no valid batch");
	if (!b)
		return -ENOMEM;
	*b = (struct ebpf_batch){ .most = (uint32_t)most };
	err = read_whens(r, &b->when, &b->n_when);
	for (int k = 0; k < N_PARTS && !err; k++)
		if (take(r, parts[k].word))
			err = read_text(r, part_of(b, &parts[k]));
		else if (!parts[k].optional)
			err = bad(r, "a batch without its texts");
	f->batch = b;
	return err;
}

static int read_repeat(struct reader *r, struct ebpf_fragment *f)
{
	uint64_t words;
	if (!take(r, "words "))
		return 0;
	if (!take_number(r, 4, &words) || !take(r, "\n") || !words || words == 3 || !take(r, "repeat"))
		return bad(r, "no valid number of words");
	f->words = (uint32_t)words;
	return !f->anywhere || f->warp ? bad(r, "a program that may not be repeated") : read_text(r, &f->repeat);
}

int ebpf_fragment_parse(struct arena *arena, const char *text, size_t size,
	struct ebpf_fragment *out, struct diag *d)
{
	struct reader r = { text, text + size, 1, arena, d };
	struct ebpf_fragment f = { 0 };
	int err = read_head(&r, &f);
	if (!err)
		err = read_sets(&r, &f);
	if (!err)
		err = read_params(&r, &f);
	if (!err)
		err = read_funcs(&r, &f);
	if (!err)
		err = read_whens(&r, &f.when, &f.n_when);
	if (!err && !take(&r, "body"))
		err = bad(&r, "no body");
	if (!err)
		err = read_text(&r, &f.body);
	if (!err)
		err = read_repeat(&r, &f);
	if (!err)
		err = read_batch(&r, &f);
	if (!err && (!take(&r, "end\n") || r.at != r.end))
		err = bad(&r, "text after the body");
	if (err == -ENOMEM)
		return diag_set(d, ENOMEM, "fragment: out of memory");
	if (!err)
		*out = f;
	return err;
}
