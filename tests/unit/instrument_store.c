/* A result as bytes and back is the same result; bytes that were cut or changed give a result that is whole in itself,
 * or none. */
#include "instrument.h"

/* Two functions, bound symbols, sites of one name and line, and some that are skipped. */
static const char original[] =
	".version 7.8\n.target sm_80\n.address_size 64\n"
	".file 1 \"a/b.cu\"\n"
	".global .align 4 .u32 bias = 5;\n.const .align 4 .u32 table[2] = {1, 2};\n"
	".func put(.param .b64 p)\n{\n\t.reg .b32 %r<2>; .reg .b64 %rd<2>;\n\t.loc 1 3 5\n"
	"\tld.param.u64 %rd1, [p];\n\tst.global.u32 [%rd1], %r1;\n\tst.global.v2.u32 [%rd1], {%r1, %r1};\n\tret;\n}\n"
	".visible .entry k(.param .u64 out, .param .u32 i)\n{\n"
	"\t.reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f32 %f<9>;\n"
	"\t.loc 1 9 1\n\tld.param.u64 %rd1, [out];\n\tld.global.u32 %r2, [bias];\n\tld.const.u32 %r3, [table];\n"
	"\tld.global.f32 %f1, [%rd1];\n\tmul.f32 %f2, %f1, %f1;\n\tst.global.f32 [%rd1], %f2;\n"
	"\tadd.f32 %f3, %f2, %f1;\n\tst.global.f32 [%rd1+4], %f3;\n"
	"\t{ .param .b64 a; st.param.b64 [a], %rd1;\n\t  call put, (a); }\n\tret;\n}\n";

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_site(const struct instrument_site *a, const struct instrument_site *b)
{
	return a->ordinal == b->ordinal && a->point == b->point && a->ptx_line == b->ptx_line &&
	       a->line == b->line && a->column == b->column && a->space == b->space && a->bytes == b->bytes &&
	       a->parts_product == b->parts_product && same_text(a->file, b->file) &&
	       same_text(a->opcode, b->opcode) && same_text(a->function, b->function) &&
	       same_text(a->skipped, b->skipped) && same_text(a->unguarded, b->unguarded);
}

static bool same(const struct instrument_result *a, const struct instrument_result *b)
{
	bool good = a->n_sites == b->n_sites && a->n_probed == b->n_probed && a->n_symbols == b->n_symbols &&
		    a->table_entries == b->table_entries && a->launch_param == b->launch_param && a->sampled == b->sampled &&
		    a->reads_launch == b->reads_launch &&
		    a->n_params == b->n_params && a->launch_param_offset == b->launch_param_offset &&
		    a->last_bit_may_differ == b->last_bit_may_differ && a->reads_launch == b->reads_launch &&
		    a->sampled == b->sampled && a->local_bytes_added == b->local_bytes_added;
	good = good && !memcmp(&a->cost, &b->cost, sizeof(a->cost));
	for (uint32_t i = 0; good && i < a->n_symbols; i++)
		good = !strcmp(a->symbols[i], b->symbols[i]);
	for (uint32_t i = 0; good && i < a->n_sites; i++)
		good = same_site(&a->sites[i], &b->sites[i]);
	return good;
}

/* Reads bytes that may be anything, and all that comes of them, so that a sanitizer sees it. */
static bool read_back(const char *bytes, size_t n, const struct instrument_result *want)
{
	struct arena *a = arena_new();
	struct instrument_result r;
	size_t used = 0, letters = 0;
	bool points = true;
	/* A copy of this size exactly: what reads past it is seen. */
	char *copy = malloc(n ? n : 1);
	memcpy(copy, bytes, n);
	bool good = !instrument_restore(a, copy, n, &r, &used);
	free(copy);
	for (uint32_t i = 0; good && i < r.n_symbols; i++)
		letters += strlen(r.symbols[i]);
	for (uint32_t i = 0; good && i < r.n_sites; i++)
		letters += strlen(r.sites[i].opcode ? r.sites[i].opcode : "") + r.sites[i].ordinal +
			   strlen(r.sites[i].file ? r.sites[i].file : "");
	for (uint32_t i = 0; good && i < r.n_sites; i++)
		points &= r.sites[i].point >= EBPF_POINT_ENTRY && r.sites[i].point <= EBPF_POINT_LOAD_DONE;
	struct instrument_estimate e = { 1, 1, 1 };
	if (good)
		instrument_estimate(&r.cost, &e);
	bool numbers = e.least >= 1 && e.slowdown >= 1 && e.most >= 1 && e.most < 1e300;
	bool whole = good && used <= n && points && numbers && r.table_entries == EBPF_TABLE_SYMBOLS + r.n_symbols &&
		     (letters || !r.n_sites) && (!want || same(&r, want));
	arena_free(a);
	return want ? whole : !good || whole;
}

int main(void)
{
	struct arena *a = arena_new();
	struct diag d = { 0 };
	struct instrument_result r;
	struct ptx_module *m = parse_text(original);
	struct ebpf_fragment load = make_fragment(a, EBPF_POINT_LOAD, false, BIT(LANE) | BIT(LAUNCH)),
			     store = make_fragment(a, EBPF_POINT_STORE, true, BIT(BYTES));
	const struct ebpf_fragment *both[] = { &load, &store };
	struct instrument_request req = { .module = m, .kernel = "k", .fragments = both, .n_fragments = 2,
		.kernel_id = 3, .first_site = 7 };
	is_int(instrument_kernel(a, &req, &r, &d), 0, "a kernel with all that a result can have (%s)", d.text);
	ok(r.n_symbols && r.launch_param && r.n_sites > 6, "%u sites, %u symbols, a launch parameter", r.n_sites, r.n_symbols);
	r.sites[2].skipped = "one reason";
	r.sites[3].skipped = "one reason";
	r.sites[4].skipped = "";
	r.sites[5].unguarded = "another reason";
	struct buf b = { 0 };
	instrument_store(&r, &b);
	size_t n = b.len;
	ok(read_back(b.data, n, &r), "back from %zu bytes", n);
	buf_puts(&b, "what stands behind is not read");
	ok(read_back(b.data, b.len, &r), "what stands behind is another's");
	bool good = true, whole = true;
	for (size_t i = 0; i < n; i++)
		whole &= read_back(b.data, i, NULL) && !read_back(b.data, i, &r);
	ok(whole, "every shorter text is refused or whole");
	for (size_t i = 0; i < n; i++)
		for (int bit = 0; bit < 8; bit++) {
			b.data[i] ^= (char)(1 << bit);
			good &= read_back(b.data, n, NULL);
			b.data[i] ^= (char)(1 << bit);
		}
	ok(good, "with any bit changed it is refused or whole");
	static const uint32_t odd[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe, 0xfffffffd };
	for (size_t i = 0; i + 4 <= n; i++)
		for (size_t k = 0; k < sizeof(odd) / sizeof(odd[0]); k++) {
			char keep[4];
			memcpy(keep, b.data + i, 4);
			memcpy(b.data + i, &odd[k], 4);
			good &= read_back(b.data, n, NULL);
			memcpy(b.data + i, keep, 4);
		}
	ok(good, "with any number changed to an odd one too");
	ok(read_back(b.data, n, &r), "and the bytes are as they were");
	buf_free(&b);
	ptx_module_free(m);
	arena_free(a);
	return tap_done();
}
