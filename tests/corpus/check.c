/* check.c - what corpus/run.t asks of each PTX file:
 *
 *	corpus_check IN.ptx OUTDIR
 *
 * The file is parsed and printed: it must come back byte for byte. Each kernel is instrumented at every
 * point with fragments that read every field, once per thread and once per warp, into OUTDIR/N.ptx; of every other kernel (with
 * EGPU_CORPUS_SAMPLED set: of each) in chosen warps;
 * one line a kernel says how many sites of each kind it has, or why it has no variant:
 *
 *	kernel NAME load 3 store 1 atomic 0 exit 2 branch 1 barrier 0 call 0 done 3 block 4 probed 20 N.ptx
 *	refused NAME: reason
 *
 * Exit status 1: the file does not parse or come back, or a proof or a pass failed.
 */
#include "../unit/instrument.h"

enum { KINDS = EBPF_POINT_LOAD_DONE + 1 };

static char *read_all(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	char *text = NULL;
	long n = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
	if (n >= 0 && !fseek(f, 0, SEEK_SET) && (text = malloc((size_t)n + 1))) {
		*size = fread(text, 1, (size_t)n, f);
		text[*size] = 0;
	}
	if (f)
		fclose(f);
	return text;
}

static bool round_trip(const struct ptx_module *m, const char *text, size_t size)
{
	struct buf b = { 0 };
	ptx_print(m, &b);
	bool same = !b.failed && b.len == size && !memcmp(b.data, text, size);
	buf_free(&b);
	return same;
}

static uint32_t all_fragments(struct arena *a, bool sampled, struct ebpf_fragment *out, const struct ebpf_fragment **list)
{
	static const enum ebpf_point points[] = { EBPF_POINT_ENTRY, EBPF_POINT_EXIT, EBPF_POINT_MEM,
		EBPF_POINT_BLOCK, EBPF_POINT_BRANCH, EBPF_POINT_BARRIER, EBPF_POINT_CALL, EBPF_POINT_INSN,
		EBPF_POINT_LOAD_DONE };
	uint32_t n = 0;
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		for (int warp = 0; warp < 2; warp++, n++) {
			out[n] = make_fragment(a, points[i], warp, fields_of(ebpf_point_context(points[i], warp)));
			/* Every instruction would make variants that ptxas chews on for minutes. */
			if (points[i] == EBPF_POINT_INSN)
				out[n].opcode = warp ? "mul" : "add";
			out[n].sampled = sampled;
			list[n] = &out[n];
		}
	}
	return n;
}

static void say_sites(const char *kernel, const struct instrument_result *r, uint32_t number)
{
	uint32_t count[KINDS] = { 0 };
	for (uint32_t i = 0; i < r->n_sites; i++)
		count[r->sites[i].point]++;
	printf("kernel %s load %u store %u atomic %u exit %u branch %u barrier %u call %u done %u block %u probed %u %u.ptx\n",
		kernel, count[EBPF_POINT_LOAD], count[EBPF_POINT_STORE], count[EBPF_POINT_ATOMIC],
		count[EBPF_POINT_EXIT], count[EBPF_POINT_BRANCH], count[EBPF_POINT_BARRIER],
		count[EBPF_POINT_CALL], count[EBPF_POINT_LOAD_DONE], count[EBPF_POINT_BLOCK], r->n_probed, number);
}

static bool sampled; /* all */

static int check_kernel(const struct ptx_module *m, const char *kernel, const char *dir, uint32_t number)
{
	struct ebpf_fragment fragments[32];
	const struct ebpf_fragment *list[32];
	struct arena *a = arena_new();
	struct instrument_request req = { .module = m, .kernel = kernel, .fragments = list };
	struct instrument_result r;
	struct diag d = { 0 };
	char path[1024];
	/* Every other one in chosen warps: its functions have two versions. */
	req.n_fragments = all_fragments(a, sampled || number % 2, fragments, list);
	int err = instrument_kernel(a, &req, &r, &d);
	if (err) {
		printf("%s %s: %s\n", strstr(d.text, "internal check") || err != -EOPNOTSUPP ? "broken" : "refused",
			kernel, d.text);
	} else {
		say_sites(kernel, &r, number);
		snprintf(path, sizeof(path), "%s/%u.ptx", dir, number);
		FILE *f = fopen(path, "wb");
		err = f ? 0 : -EIO;
		if (f) {
			fwrite(r.ptx, 1, r.ptx_bytes, f);
			fclose(f);
		}
	}
	bool broken = err && (err != -EOPNOTSUPP || strstr(d.text, "internal check"));
	arena_free(a);
	return broken;
}

int main(int argc, char **argv)
{
	struct ptx_module *m = NULL;
	struct diag d = { 0 };
	size_t size = 0;
	int failed = 0;
	sampled = getenv("EGPU_CORPUS_SAMPLED") != NULL;
	char *text = argc == 3 ? read_all(argv[1], &size) : NULL;
	if (!text)
		return 2;
	if (ptx_parse(text, size, &m, &d)) {
		printf("broken %s: line %u: %s\n", argv[1], d.line, d.text);
		return 1;
	}
	if (!round_trip(m, text, size)) {
		printf("broken %s: does not come back byte for byte\n", argv[1]);
		failed = 1;
	}
	for (uint32_t i = 0; i < m->n_items; i++) {
		const struct ptx_func *f = m->items[i].func;
		if (m->items[i].kind == PTX_ITEM_FUNC && f->is_entry && !f->is_decl)
			failed |= check_kernel(m, f->name, argv[2], i);
	}
	ptx_module_free(m);
	free(text);
	return failed;
}
