/* The code of one function out of a linked cubin: what is found, what is put into it for the place where it will lie, what is refused; and
 * damage. Made by hand, and by ptxas and nvlink where those are. */
#include <elf.h>
#include <errno.h>
#include <unistd.h>

#include "cuda/fatbin.h"
#include "tap.h"

enum { INSN = 16, INSNS = 6, LOW = 56, HIGH = 57, CALL = 58, CALL_SPLIT = 75, MAX_IMAGE = 4096 };

struct spec {
	uint32_t type;	   /* of the second relocation */
	uint64_t offset;   /* of it */
	int64_t addend;
	uint32_t symbol;   /* against which it is: 1 the function, 2 another; 0: the function */
	bool none;	   /* against symbol 0 */
	const char *bank;  /* name of one more section, NULL: none */
	bool no_info;
};

struct image {
	Elf64_Ehdr head;
	Elf64_Shdr s[8];
	char names[128];
	char text[INSNS * INSN], other[INSN];
	Elf64_Sym sym[3];
	char strings[16];
	uint32_t info[12];
	Elf64_Rela rela[2];
};

/* Sections: names, .text.f, .text.other, .symtab, .strtab, .nv.info, .rela.text.f, and one more. */
static void make(struct image *e, const struct spec *x)
{
	static const char names[] = "\0.names\0.text.f\0.text.other\0.symtab\0.strtab\0.nv.info\0.rela.text.f\0";
	static const uint32_t at[] = { 1, 8, 16, 28, 36, 44, 53 };
	memset(e, 0, sizeof(*e));
	memcpy(e->head.e_ident, ELFMAG, SELFMAG);
	e->head.e_ident[EI_CLASS] = ELFCLASS64;
	e->head.e_ident[EI_DATA] = ELFDATA2LSB;
	e->head.e_machine = 190;
	e->head.e_shoff = offsetof(struct image, s);
	e->head.e_shentsize = sizeof(Elf64_Shdr);
	e->head.e_shnum = x->bank ? 8 : 7;
	memcpy(e->names, names, sizeof(names));
	if (x->bank)
		strcpy(e->names + sizeof(names), x->bank);
	for (size_t i = 0; i < sizeof(e->text); i++)
		e->text[i] = (char)(i * 7 + 1);
	for (size_t i = 0; i < sizeof(e->other); i++)
		e->other[i] = (char)(i + 100);
	e->sym[1] = (Elf64_Sym){ .st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1, .st_size = sizeof(e->text) };
	e->sym[2] = (Elf64_Sym){ .st_name = 3, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 2, .st_size = INSN };
	memcpy(e->strings, "\0f\0other", 9);
	const uint32_t info[12] = { 0x00082f04, 2, 99, 0x00082f04, 1, 24, 0x00081104, 1, x->no_info ? 0 : 48, 0x00081104, 2, 7 };
	memcpy(e->info, info, sizeof(info));
	if (x->no_info)
		e->info[6] = 0x00081204;
	e->rela[0] = (Elf64_Rela){ 2 * INSN, ELF64_R_INFO(1, LOW), 0x40 };
	e->rela[1] = (Elf64_Rela){ x->offset, ELF64_R_INFO((uint64_t)(x->none ? 0 : x->symbol ? x->symbol : 1), x->type), x->addend };
	struct {
		uint32_t type, link, info;
		const void *data;
		size_t bytes;
	} parts[] = { { SHT_STRTAB, 0, 0, e->names, sizeof(e->names) }, { SHT_PROGBITS, 0, 0, e->text, sizeof(e->text) },
		{ SHT_PROGBITS, 0, 0, e->other, sizeof(e->other) }, { SHT_SYMTAB, 4, 1, e->sym, sizeof(e->sym) },
		{ SHT_STRTAB, 0, 0, e->strings, sizeof(e->strings) }, { SHT_LOPROC, 3, 0, e->info, sizeof(e->info) },
		{ SHT_RELA, 3, 1, e->rela, sizeof(e->rela) }, { SHT_PROGBITS, 0, 0, e->other, 4 } };
	for (int i = 0; i < 8; i++)
		e->s[i] = (Elf64_Shdr){ .sh_name = i < 7 ? at[i] : (uint32_t)sizeof(names),
			.sh_type = parts[i].type,
			.sh_offset = (size_t)((const char *)parts[i].data - (const char *)e),
			.sh_size = parts[i].bytes,
			.sh_link = parts[i].link,
			.sh_info = parts[i].info };
}

static const struct spec plain = { .type = HIGH, .offset = 3 * INSN, .addend = 0x40 };

static int code_of(const struct spec *x, const char *name, uint64_t at, char *code, size_t room, struct cubin_code *out)
{
	struct image e;
	make(&e, x);
	return cubin_code(&e, sizeof(e), name, at, code, room, out);
}

static void found(void)
{
	const uint64_t at = 0x7f12fffffff0;
	struct cubin_code c = { 0 };
	char code[INSNS * INSN];
	uint32_t low, high;
	bool rest = true;
	is_int(code_of(&plain, "f", 0, NULL, 0, &c), 0, "a function is looked at");
	is_int(c.bytes, sizeof(code), "its bytes");
	is_int(c.regs, 24, "its registers, not another's");
	is_int(c.frame_bytes, 48, "its stack");
	is_int(code_of(&plain, "f", at, code, sizeof(code), &c), 0, "and copied for a place");
	memcpy(&low, code + 2 * INSN + 4, 4);
	memcpy(&high, code + 3 * INSN + 4, 4);
	is_int(low, (uint32_t)(at + 0x40), "the low half of an address, over the carry");
	is_int(high, (uint32_t)((at + 0x40) >> 32), "the high half");
	for (size_t i = 0; i < sizeof(code); i++)
		rest &= (i >= 36 && i < 40) || (i >= 52 && i < 56) || code[i] == (char)(i * 7 + 1);
	ok(rest, "everything else stays");
	is_int(code_of(&plain, "f", at, code, sizeof(code) - 1, &c), -ENOSPC, "no room");
	is_int(code_of(&plain, "g", at, code, sizeof(code), &c), -ENOENT, "no such function");
}

static void registers(void)
{
	struct image e;
	struct spec silent = plain;
	make(&e, &plain);
	is_int(cubin_kernel_regs(&e, sizeof(e), "f"), 24, "a kernel's registers by its name");
	is_int(cubin_kernel_regs(&e, sizeof(e), "other"), 99, "and another's");
	is_int(cubin_kernel_regs(&e, sizeof(e), "g"), 0, "none of a kernel that is not there");
	e.info[0] = e.info[3] = 0x00082e04;
	is_int(cubin_kernel_regs(&e, sizeof(e), "f"), 0, "nor of one of which nothing is said");
	make(&e, &silent);
	for (size_t n = 0; n < sizeof(e); n += 8) {
		uint32_t regs = cubin_kernel_regs(&e, n, "f");
		if (regs != 0 && regs != 24) {
			ok(false, "cut off at %zu: %u registers", n, regs);
			return;
		}
	}
	ok(true, "cut off anywhere: the right number or none");
}

static bool same_kernel(const struct image *a, const char *name, const struct image *b, const char *other)
{
	struct cubin_kernel x = { .sm = 0 }, y = { .sm = 0 };
	bool same = !cubin_kernel(a, sizeof(*a), name, &x) && !cubin_kernel(b, sizeof(*b), other, &y) && cubin_kernel_same(&x, &y);
	cubin_kernel_free(&x);
	cubin_kernel_free(&y);
	return same;
}

/* `f` is a kernel, `other` a function that it may call, unless that is a kernel too. */
static void compared(void)
{
	struct image a, b;
	struct cubin_kernel k;
	int wrong = 0;
	make(&a, &plain);
	a.sym[1].st_other = 0x10;
	b = a;
	ok(same_kernel(&a, "f", &b, "f"), "a kernel is like itself");
	b.names[14] = b.strings[1] = 'g';
	b.names[64] = 'g';
	ok(!strcmp(b.names + b.s[6].sh_name, ".rela.text.g") && same_kernel(&a, "f", &b, "g"), "and like one of another name");
	is_int(cubin_kernel(&b, sizeof(b), "f", &k), -ENOENT, "which is not there by the first one");
	b = a;
	b.text[20] ^= 1;
	ok(!same_kernel(&a, "f", &b, "f"), "not like one of which a bit differs");
	b = a;
	b.rela[1].r_addend++;
	ok(!same_kernel(&a, "f", &b, "f"), "nor one that refers to another place");
	b = a;
	b.info[5]++;
	ok(!same_kernel(&a, "f", &b, "f"), "nor one of other registers");
	b = a;
	b.other[3]++;
	ok(!same_kernel(&a, "f", &b, "f"), "nor one with another function");
	a.sym[2].st_other = b.sym[2].st_other = 0x10;
	ok(same_kernel(&a, "f", &b, "f"), "but with another kernel beside");
	struct spec with = plain;
	with.bank = ".nv.constant4";
	make(&b, &with);
	b.sym[1].st_other = b.sym[2].st_other = 0x10;
	ok(same_kernel(&a, "f", &b, "f"), "constants of a module that code without them cannot use");
	struct image c = b;
	c.other[0] ^= 1; /* what that section holds */
	ok(!same_kernel(&c, "f", &b, "f"), "not like one with other constants");
	for (size_t n = 0; n < sizeof(a); n++) {
		char *cut = malloc(n + 1);
		memcpy(cut, &a, n);
		if (!cubin_kernel(cut, n, "f", &k))
			cubin_kernel_free(&k);
		free(cut);
	}
	for (size_t i = 0; i < sizeof(a) * 8; i++) {
		b = a;
		((uint8_t *)&b)[i / 8] ^= (uint8_t)(1u << i % 8);
		int err = cubin_kernel(&b, sizeof(b), "f", &k);
		wrong += err && err != -ENOENT && err != -EINVAL;
		if (!err)
			cubin_kernel_free(&k);
	}
	is_int(wrong, 0, "cut off anywhere, and with any bit changed, it is one or is refused");
}

static uint64_t bits(const char *insn, uint32_t at, uint32_t n)
{
	uint64_t v = 0;
	for (uint32_t i = n; i--;)
		v = v << 1 | ((uint8_t)insn[(at + i) / 8] >> (at + i) % 8 & 1);
	return v;
}

/* Another function comes along behind, and is what is called. */
static void calls(void)
{
	const uint64_t at = 0x7f1234567880, to = at + 128;
	const struct spec split = { .type = CALL_SPLIT, .offset = 48, .symbol = 2 }, whole = { .type = CALL, .offset = 48, .symbol = 2 };
	struct cubin_code c = { 0 };
	char code[1024];
	is_int(code_of(&split, "f", at, code, sizeof(code), &c), 0, "a function that calls another");
	is_int(c.bytes, 128 + INSN, "both, one behind the other");
	is_int(c.regs, 99, "the registers of the one that takes more");
	is_int(c.frame_bytes, 48 + 7, "and the stack of both");
	ok(code[128] == 100 && code[128 + INSN - 1] == 115, "the other's code is there");
	is_int(bits(code + 48, 16, 8) | bits(code + 48, 34, 47) << 8, to / 4, "its address, in two parts");
	is_int(code_of(&whole, "f", at, code, sizeof(code), &c), 0, "before sm_90");
	is_int(bits(code + 48, 34, 47), to / 4, "its address, in one");
}

static void refused(void)
{
	struct cubin_code c;
	char code[1024];
	const struct {
		const char *what;
		struct spec x;
		int err;
	} cases[] = {
		{ "a relocation of another kind", { .type = 55, .offset = 48 }, -ENOTSUP },
		{ "a function behind the last symbol", { .type = HIGH, .offset = 48, .symbol = 3 }, -EINVAL },
		{ "no function", { .type = HIGH, .offset = 48, .symbol = 0, .none = true }, -ENOTSUP },
		{ "constants of its own", { .type = HIGH, .offset = 48, .bank = ".nv.constant2.f" }, -ENOTSUP },
		{ "constants of another function", { .type = HIGH, .offset = 48, .bank = ".nv.constant2.other" }, 0 },
		{ "its stack is not said", { .type = HIGH, .offset = 48, .no_info = true }, -ENOTSUP },
		{ "a relocation behind its end", { .type = HIGH, .offset = INSNS * INSN }, -EINVAL },
		{ "a relocation across its end", { .type = HIGH, .offset = INSNS * INSN - 8 }, -EINVAL },
		{ "a relocation far away", { .type = HIGH, .offset = UINT64_MAX - 15 }, -EINVAL },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int(code_of(&cases[i].x, "f", 4096, code, sizeof(code), &c), cases[i].err, "%s", cases[i].what);
}

/* Every byte replaced, every length: an error, or bytes within the image. */
static void damaged(void)
{
	static const uint8_t values[] = { 0, 1, 0x7f, 0x80, 0xff };
	struct image e;
	struct cubin_code c;
	uint32_t sane = 0, odd = 0;
	make(&e, &plain);
	for (size_t n = 0; n <= sizeof(e); n++)
		for (size_t k = 0; k < sizeof(values) * (n == sizeof(e) ? sizeof(e) : 1); k++) {
			char *copy = malloc(n ? n : 1), *code = malloc(MAX_IMAGE);
			memcpy(copy, &e, n);
			if (n == sizeof(e))
				copy[k / sizeof(values)] = (char)values[k % sizeof(values)];
			int err = cubin_code(copy, n, "f", 0x1000, code, MAX_IMAGE, &c);
			sane += !err && c.bytes <= n;
			odd += (!err && c.bytes > n) || (err && err != -EINVAL && err != -ENOENT && err != -ENOTSUP && err != -ENOSPC);
			free(copy);
			free(code);
		}
	ok(sane && !odd, "damage: an error or bytes of the image (%u of either)", sane + odd);
}

/* -- what the toolkit makes -------------------------------------------------------- */

static const char division[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .func f(.param .b64 a, .param .b64 b)\n{\n\t.reg .b64 %a, %b;\n\tld.param.b64 %a, [a];\n\tld.param.b64 %b, [b];\n"
	"\tdiv.u64 %b, %a, %b;\n\tst.global.u64 [%a], %b;\n\tret;\n}\n"
	".visible .entry keep(.param .u64 at)\n{\n\t.reg .b64 %at, %f;\n\tld.param.u64 %at, [at];\n\tmov.u64 %f, f;\n\tst.global.u64 [%at], %f;\n"
	"\t{ .param .b64 p; .param .b64 q; st.param.b64 [p], %at; st.param.b64 [q], %at; call f, (p, q); }\n\tret;\n}\n";
/* Nobody calls it: the linker leaves out what it calls. */
static const char uncalled[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .func f(.param .b64 a, .param .b64 b)\n{\n\t.reg .b64 %a, %b;\n\tld.param.b64 %a, [a];\n\tld.param.b64 %b, [b];\n"
	"\tdiv.u64 %b, %a, %b;\n\tst.global.u64 [%a], %b;\n\tret;\n}\n"
	".visible .entry keep(.param .u64 at)\n{\n\t.reg .b64 %at, %f;\n\tld.param.u64 %at, [at];\n\tmov.u64 %f, f;\n\tst.global.u64 [%at], %f;\n"
	"\tret;\n}\n";

static bool built(const char *dir, const char *text, const char *arch, char *path)
{
	char command[512];
	snprintf(path, 128, "%s/f.ptx", dir);
	FILE *f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f))
		return false;
	snprintf(command, sizeof(command),
		"PATH=$PATH:/usr/local/cuda/bin; ptxas -c -arch=%s -o %s/f.o %s/f.ptx 2>/dev/null && nvlink -arch=%s -o %s/f.cubin %s/f.o "
		"2>/dev/null",
		arch, dir, dir, arch, dir, dir);
	snprintf(path, 128, "%s/f.cubin", dir);
	return !system(command);
}

static void by_toolkit(void)
{
	const uint64_t BASE = 0x500000000, MOVED = 0x123480;
	static const char *const archs[] = { "sm_75", "sm_80", "sm_90" };
	char dir[] = "/tmp/egpu-code-XXXXXX", path[128], command[64];
	if (!mkdtemp(dir))
		return;
	for (int i = 0; i < 3; i++) {
		static char image[65536], code[65536], moved[65536];
		struct cubin_code c;
		if (!built(dir, division, archs[i], path)) {
			tap_skip("no ptxas and nvlink");
			continue;
		}
		FILE *f = fopen(path, "r");
		size_t n = f ? fread(image, 1, sizeof(image), f) : 0;
		int err = cubin_code(image, n, "f", BASE, code, sizeof(code), &c);
		err = err ? err : cubin_code(image, n, "f", BASE + MOVED, moved, sizeof(moved), &c);
		uint32_t returns = 0, calls = 0, wrong = 0;
		for (size_t at = 0; !err && at + 16 <= c.bytes; at += 16) {
			bool call = ((uint8_t)code[at] == 0x43 && (code[at + 1] & 15) == 9);
			uint64_t a = bits(code + at, 34, 47), b = bits(moved + at, 34, 47);
			if (call && i == 2) {
				a = a << 8 | bits(code + at, 16, 8);
				b = b << 8 | bits(moved + at, 16, 8);
			}
			calls += call;
			wrong += call && b - a != MOVED / 4;
			wrong += call && (a * 4 < BASE || a * 4 >= BASE + c.bytes);
			returns += !call && bits(code + at, 32, 32) != bits(moved + at, 32, 32);
		}
		ok(!err && c.regs >= 16 && c.regs <= 255 && returns && calls && !wrong,
			"%s: a function that divides: %u calls within what is put together, %u return addresses (%d, %zu bytes)", archs[i], calls,
			returns, err, c.bytes);
		if (f)
			fclose(f);
		if (built(dir, uncalled, archs[i], path) && (f = fopen(path, "r"))) {
			n = fread(image, 1, sizeof(image), f);
			is_int(cubin_code(image, n, "f", BASE, code, sizeof(code), &c), -ENOTSUP, "%s: without what it calls it is refused", archs[i]);
			fclose(f);
		}
	}
	snprintf(command, sizeof(command), "rm -r %s", dir);
	if (system(command))
		printf("# %s stays\n", dir);
}

int main(void)
{
	found();
	registers();
	compared();
	calls();
	refused();
	damaged();
	by_toolkit();
	return tap_done();
}
