/* texts.c - which of several PTX texts of one name was loaded.
 *
 * Compilers keep what they have made, and name kernels after what they do: a process, or a cache on disk, has several texts of a name. A
 * wrong one would compute something else in the program's place. In this order:
 *
 *	1. what the texts themselves say: parameters, and the largest block
 *	2. their machine code: that which lies beside them in a cache, or what the driver's linker makes of them. Texts of the
 *	   same code do the same, and the longest stands for them; static shared memory is the loaded code's
 *	3. machine code of this name in memory: that of the loaded code's registers and shared memory. It is the code of a text if it is equal
 *	   byte for byte, or has the text beside it. If there is any, it must be that of one text alone
 *	4. where memory has none, the text whose code takes the loaded code's registers
 *
 * The third comes before the fourth because other compilers take other registers for the same text: machine code that comes from none
 * of the texts says that their own, as we compile them, tells nothing. Nor is a text that is left alone then taken with other registers than
 * the loaded code's: the one that was loaded may be gone from memory. What is compiled here has the kernel under another name, so
 * that what compilers leave in memory of it is not taken for the program's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum { MAX_COMPILED = 4 << 20 /* bytes of text for one kernel */, RESERVED_SHARED = 1024 };
#define OTHER_NAME "__egpu_"

/* -- lists of them ------------------------------------------------------------------------ */

const char *text_token(const char *p)
{
	for (;;) {
		while (is_blank(*p))
			p++;
		const char *end = p[0] == '/' && p[1] == '/'   ? strchr(p, '\n')
				  : p[0] == '/' && p[1] == '*' ? strstr(p + 2, "*/")
							       : p;
		if (end == p)
			return p;
		if (!end)
			return p + strlen(p);
		p = *end == '\n' ? end : end + 2;
	}
}

/* Whether they say the same as far as both go: what is left of a text that was given back is none of its own. */
static bool agree(const char *a, const char *b)
{
	for (a = text_token(a), b = text_token(b); *a && *a == *b; a = text_token(a + 1), b = text_token(b + 1))
		;
	return !*a || !*b;
}

/* What lies beside machine code says nothing of lines, and not all of what is for debuggers, which comes last. */
static const char *next_code(const char *p)
{
	for (p = text_token(p); !strncmp(p, ".loc", 4) && is_blank(p[4]); p = text_token(p))
		p += strcspn(p, "\n");
	bool over = (!strncmp(p, ".file", 5) && is_blank(p[5])) || (!strncmp(p, ".section", 8) && is_blank(p[8]));
	return over ? p + strlen(p) : p;
}

static bool agrees_with_code(const char *text, const char *beside)
{
	const char *a = next_code(text), *b = next_code(beside);
	for (; *a && *a == *b; a = next_code(a + 1), b = next_code(b + 1))
		;
	return !*a && !*b;
}

static void free_text(const struct text *t)
{
	free(t->bytes);
	free(t->elf);
}

void texts_add(struct texts *to, const struct text *t)
{
	for (uint32_t i = 0; i < to->n; i++) {
		struct text *old = &to->list[i];
		if (!agree(old->bytes, t->bytes))
			continue;
		if (t->n <= old->n) {
			free_text(t);
			return;
		}
		free_text(old);
		*old = *t;
		return;
	}
	if (to->n < MAX_TEXTS)
		to->list[to->n++] = *t;
	else
		free_text(t);
}

void texts_free(struct texts *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		free_text(&t->list[i]);
	t->n = 0;
}

/* -- what is loaded ----------------------------------------------------------------------- */

struct loaded {
	uint32_t regs, sm, threads, shared;
};

static bool ask(CUfunction fn, CUfunction_attribute which, uint32_t *out)
{
	int v = 0;
	if (!fn || !REAL(cuFuncGetAttribute) || REAL(cuFuncGetAttribute)(&v, which, fn) != CUDA_SUCCESS)
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool ask_all(CUfunction fn, struct loaded *l)
{
	return ask(fn, CU_FUNC_ATTRIBUTE_NUM_REGS, &l->regs) && ask(fn, CU_FUNC_ATTRIBUTE_BINARY_VERSION, &l->sm) &&
	       ask(fn, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &l->threads) && ask(fn, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &l->shared);
}

/* From sm_90 on a kernel that uses shared memory has some for the driver, which it does not count. */
static bool same_shared(const struct cubin_kernel *k, const struct loaded *l)
{
	return k->shared_bytes == l->shared || (l->sm >= 90 && k->shared_bytes == l->shared + RESERVED_SHARED);
}

static bool is_loaded(const struct cubin_kernel *k, const struct loaded *l)
{
	return (!k->sm || k->sm == l->sm) && (!k->regs || k->regs == l->regs) && same_shared(k, l);
}

/* -- one text ----------------------------------------------------------------------------- */

enum verdict {
	OPEN,
	OUT,	 /* it was not loaded */
	UNKNOWN, /* it may have been, and its machine code is not known */
};

struct candidate {
	const struct text *text;
	enum verdict verdict;
	bool exact;		  /* its machine code was made by who loaded it */
	struct cubin_kernel code; /* if OPEN, once it has been compiled */
	uint32_t class;		  /* the first of the same code */
	uint32_t params;	  /* how many, all of which the loaded code has; UINT32_MAX: not known */
	bool in_memory;
};

/* Behind the kernel's name where it is defined; NULL: nowhere. */
static const char *behind_name(const char *text, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = text; (p = strstr(p, ".entry"));) {
		p = text_token(p + 6);
		if (!strncmp(p, name, n) && !is_name(p[n]))
			return p + n;
	}
	return NULL;
}

/* Threads of `.maxntid 8, 8`, between parameters and body; 0: it does not say. (What the driver tells of a kernel with .reqntid is not that.) */
static uint32_t most_threads(const char *p, const char *body)
{
	static const char word[] = ".maxntid";
	const char *at = memmem(p, (size_t)(body - p), word, sizeof(word) - 1);
	uint64_t n = 1;
	if (!at)
		return 0;
	for (at += sizeof(word) - 1; at < body; at++) {
		char *end;
		at = text_token(at);
		unsigned long v = strtoul(at, &end, 10);
		if (end == at)
			return 0;
		n *= v < 65536 ? v : 65536;
		at = text_token(end);
		if (*at != ',' || n >= 65536)
			break;
	}
	return (uint32_t)n;
}

static bool text_may_be(const struct text *t, const struct source_query *q, const struct loaded *l, uint32_t *params)
{
	const char *p = behind_name(t->bytes, q->name), *body = p ? strchr(p, '{') : NULL;
	*params = UINT32_MAX;
	if (!body)
		return false;
	uint32_t most = most_threads(p, body);
	return !(most && l->threads > most) && params_may_be(p, t->bytes + t->n, q->loaded, params);
}

/* The same text with the kernel under another name. */
static bool rename_kernel(const struct text *t, const char *name, struct buf *out)
{
	size_t n = strlen(name);
	const char *from = t->bytes;
	for (const char *p = from; (p = strstr(p, name)); p += n) {
		if (is_name(p[n]) || (p > t->bytes && (is_name(p[-1]) || p[-1] == '.')))
			continue;
		buf_add(out, from, (size_t)(p - from));
		buf_puts(out, OTHER_NAME);
		from = p;
	}
	buf_puts(out, from);
	return !out->failed;
}

static void compile_candidate(struct candidate *c, const char *name)
{
	struct buf text = { 0 }, other = { 0 };
	char *elf = NULL;
	size_t bytes = 0;
	buf_printf(&other, OTHER_NAME "%s", name);
	CUresult r = rename_kernel(c->text, name, &text) && !other.failed ? compile_text(text.data, text.len, &elf, &bytes) : CUDA_ERROR_OUT_OF_MEMORY;
	/* Memory that has been used for something else since may still look like a text. */
	if (r == CUDA_ERROR_INVALID_PTX)
		c->verdict = OUT;
	else if (r != CUDA_SUCCESS || cubin_kernel(elf, bytes, other.data, &c->code))
		c->verdict = UNKNOWN;
	free(elf);
	buf_free(&text);
	buf_free(&other);
}

static void know_code(struct candidate *c, const char *name)
{
	c->exact = c->text->elf && !cubin_kernel(c->text->elf, c->text->elf_bytes, name, &c->code);
	if (!c->exact)
		compile_candidate(c, name);
}

/* -- all of them -------------------------------------------------------------------------- */

struct choice {
	const struct source_query *q;
	struct loaded loaded;
	struct candidate list[MAX_TEXTS];
	uint32_t n;
	bool foreign; /* memory has code that may be what was loaded, and is that of no text */
};

static void note_code(const char *elf, size_t bytes, void *arg)
{
	struct choice *c = arg;
	struct cubin_kernel k;
	char *text = NULL;
	size_t n;
	bool known = false;
	if (cubin_kernel(elf, bytes, c->q->name, &k))
		return;
	bool may_be = is_loaded(&k, &c->loaded);
	if (may_be && cubin_ptx(elf, bytes, &text, &n, NULL))
		text = NULL;
	for (uint32_t i = 0; may_be && i < c->n && !known; i++) {
		struct candidate *t = &c->list[i];
		known = t->verdict != OUT && ((t->code.code.len && cubin_kernel_same(&k, &t->code)) || (text && agrees_with_code(t->text->bytes, text)));
		t->in_memory |= known;
	}
	c->foreign |= may_be && !known;
	free(text);
	cubin_kernel_free(&k);
}

/* Texts of the same code are one. */
static void classify(struct choice *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		struct candidate *t = &c->list[i];
		for (t->class = 0; t->class < i; t->class++)
			if (t->verdict == OPEN && c->list[t->class].verdict == OPEN && cubin_kernel_same(&c->list[t->class].code, &t->code))
				break;
	}
}

/* The longest text of the only class for which it holds; NULL: there is none, or another. */
static const struct text *only(const struct choice *c, bool (*holds)(const struct choice *c, const struct candidate *t))
{
	const struct candidate *found = NULL;
	for (uint32_t i = 0; i < c->n; i++) {
		const struct candidate *t = &c->list[i];
		if (t->verdict == OUT || !holds(c, t))
			continue;
		if (found && found->class != t->class)
			return NULL;
		if (!found || t->text->n > found->text->n)
			found = t;
	}
	return found ? found->text : NULL;
}

static bool always(const struct choice *c, const struct candidate *t)
{
	return true;
}

static bool lies_in_memory(const struct choice *c, const struct candidate *t)
{
	return t->in_memory;
}

static bool takes_its_registers(const struct choice *c, const struct candidate *t)
{
	return t->verdict == UNKNOWN || t->code.regs == c->loaded.regs;
}

static const struct text *choose(struct choice *c, const char **how)
{
	size_t bytes = 0;
	bool any = false;
	for (uint32_t i = 0; i < c->n; i++) {
		struct candidate *k = &c->list[i];
		if (k->verdict == OUT)
			continue;
		bytes += k->text->n;
		if (bytes > MAX_COMPILED)
			k->verdict = UNKNOWN;
		else
			know_code(k, c->q->name);
		if (k->verdict == OPEN && (k->exact ? !is_loaded(&k->code, &c->loaded) : !same_shared(&k->code, &c->loaded)))
			k->verdict = OUT;
	}
	classify(c);
	memcode_each(c->q->name, note_code, c);
	for (uint32_t i = 0; i < c->n; i++)
		any |= c->list[i].in_memory;
	const struct text *left = only(c, always);
	*how = "that can have been";
	if (left && (any || !c->foreign || only(c, takes_its_registers)))
		return left;
	*how = any ? "whose machine code is in memory" : "of its registers";
	return c->foreign ? NULL : only(c, any ? lies_in_memory : takes_its_registers);
}

static void add_candidate(struct choice *c, const struct text *t, uint32_t i)
{
	struct candidate *k = &c->list[i];
	*k = (struct candidate){ .text = t, .class = i };
	k->verdict = text_may_be(t, c->q, &c->loaded, &k->params) ? OPEN : OUT;
}

/* The loaded code has all parameters of the text that has the most of them: others are too short. */
static void drop_short(struct choice *c)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < c->n; i++)
		if (c->list[i].verdict == OPEN && c->list[i].params != UINT32_MAX && c->list[i].params > most)
			most = c->list[i].params;
	for (uint32_t i = 0; i < c->n; i++)
		if (c->list[i].params < most)
			c->list[i].verdict = OUT;
}

static const struct text *which(struct texts *t, const struct source_query *q)
{
	struct choice *c = calloc(1, sizeof(*c));
	const struct text *found = NULL;
	const char *how = "";
	if (c && ask_all(q->loaded, &c->loaded)) {
		c->q = q;
		c->n = t->n;
		for (uint32_t i = 0; i < t->n; i++)
			add_candidate(c, &t->list[i], i);
		drop_short(c);
		found = choose(c, &how);
		for (uint32_t i = 0; i < t->n; i++)
			cubin_kernel_free(&c->list[i].code);
	}
	free(c);
	agent_log("%s: %u texts, %s%s", q->name, t->n, found ? "the one " : "nothing tells which was loaded", found ? how : "");
	return found;
}

int texts_image(struct texts *t, struct source_query *q, uint64_t until_ns, struct image **out, const char **why)
{
	struct loaded l;
	uint32_t params;
	const struct text *found = t->n == 1 ? &t->list[0] : NULL;
	*out = NULL;
	if (found && ask_all(q->loaded, &l) && !text_may_be(found, q, &l, &params)) {
		*why = "the PTX text of this name that is in the process's memory is of another version than what was loaded";
		return 0;
	}
	q->several |= t->n > 1;
	if (t->n > 1 && !memcode_look(q->asked_ns, until_ns))
		return -EAGAIN;
	if (t->n > 1 && !(found = which(t, q)))
		*why = "several PTX texts of this name are in the process's memory, and nothing tells which of them was loaded";
	struct image *im = found ? image_get_bytes(found->bytes, found->n, q->cc) : NULL;
	*out = im && image_kernel(im, q->name) ? im : NULL;
	return 0;
}
