/* Which kernel names a pattern matches. */
#include "map/session.h"
#include "tap.h"

#include <errno.h>

struct row {
	const char *pattern, *mangled, *demangled;
	int want;
};

#define TPL "_ZN2ns6kernelIN3std4pairIiiEELi4EEEvPT_"
#define TPL_D "void ns::kernel<std::pair<int, int>, (int)4>(std::pair<int, int>*)"
#define ANON "_ZN12_GLOBAL__N_13addEPf"
#define ANON_D "(anonymous namespace)::add(float*)"
#define CALL "_ZN1FclEi"
#define CALL_D "F::operator()(int) const"
#define FNP "_Z4sortPFbiiE"
#define FNP_D "sort(bool (*)(int, int))"
#define LAM "_Z3runIZ4mainEUliE_EvT_"
#define LAM_D "void run<main::{lambda(int)#1}>(main::{lambda(int)#1})"
#define LOCAL "_ZZN1a1bEiE1c"
#define LOCAL_D "a::b(int)::c(float)"
#define SHIFT "_ZN2nslsERKNS_1TE"
#define SHIFT_D "ns::operator<<(ns::T const&)"
#define CONV "_ZNK1TcvbEv"
#define CONV_D "ns::T::operator bool() const"
#define EXPR "_Z1gILb1EEv"
#define EXPR_D "void ns::g<(1>0), x::y>(decltype((a)->b))"

static const struct row rows[] = {
	{ "vecadd", "vecadd", NULL, 1 },
	{ "vecadd", "vecadd", "vecadd", 1 },
	{ "vec*", "vecadd", NULL, 1 },
	{ "vec", "vecadd", NULL, 0 },
	{ "*", "vecadd", NULL, 1 },
	{ "", "vecadd", NULL, 0 },
	{ "v?cad[a-d]", "vecadd", NULL, 1 },
	{ "v?cad[!a-d]", "vecadd", NULL, 0 },
	{ "a*b*c*d", "axxbxxcxxd", NULL, 1 },
	{ "a*b*c*d", "axxbxxcxx", NULL, 0 },
	{ "*add*", "vecadd_kernel", NULL, 1 },
	{ "a\\*b", "a*b", NULL, 1 },
	{ "a\\*b", "axb", NULL, 0 },
	{ "a[", "a[", NULL, 1 },
	{ "a[b", "a[b", NULL, 1 },
	{ "kernel", TPL, TPL_D, 1 },
	{ "ns::kernel", TPL, TPL_D, 1 },
	{ "ns::kernel<std::pair<int, int>, (int)4>", TPL, TPL_D, 1 },
	{ "kernel<std::pair<int, int>, (int)4>", TPL, TPL_D, 1 },
	{ TPL, TPL, TPL_D, 1 },
	{ "ns::*", TPL, TPL_D, 1 },
	{ "std::*", TPL, TPL_D, 0 },
	{ "pair", TPL, TPL_D, 0 },
	{ "void", TPL, TPL_D, 0 },
	{ "add", ANON, ANON_D, 1 },
	{ "(anonymous namespace)::add", ANON, ANON_D, 1 },
	{ "namespace)::add", ANON, ANON_D, 0 },
	{ "operator()", CALL, CALL_D, 1 },
	{ "F::operator()", CALL, CALL_D, 1 },
	{ "F::operator", CALL, CALL_D, 0 },
	{ "sort", FNP, FNP_D, 1 },
	{ "run", LAM, LAM_D, 1 },
	{ "main", LAM, LAM_D, 0 },
	{ "c", LOCAL, LOCAL_D, 1 },
	{ "a::b(int)::c", LOCAL, LOCAL_D, 1 },
	{ "b", LOCAL, LOCAL_D, 0 },
	{ "operator<<", SHIFT, SHIFT_D, 1 },
	{ "ns::operator<<", SHIFT, SHIFT_D, 1 },
	{ "operator bool", CONV, CONV_D, 1 },
	{ "ns::T::operator bool", CONV, CONV_D, 1 },
	{ "bool", CONV, CONV_D, 0 },
	{ "g", EXPR, EXPR_D, 1 },
	{ "ns::g", EXPR, EXPR_D, 1 },
	{ "y", EXPR, EXPR_D, 0 },
	{ "/^kern/", TPL, TPL_D, 1 },
	{ "/^ns::k.*<std/", TPL, TPL_D, 1 },
	{ "/ernel$/", TPL, TPL_D, 1 },
	{ "/^(add|sub)$/", ANON, ANON_D, 1 },
	{ "/^(mul|sub)$/", ANON, ANON_D, 0 },
	{ "/(/", ANON, ANON_D, -EINVAL },
	{ "//", "//", NULL, 1 },
	{ "f", "_Z1fv.part.0", "f() [clone .part.0]", 1 },
	{ "operator()", "x", "operator()", 1 },
	{ "(anonymous namespace)", "x", "(anonymous namespace)", 1 },
	{ "x", "m", ")))((>>><<x", 0 },
	{ "x", "m", "", 0 },
};

int main(void)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		is_int(session_match(rows[i].pattern, rows[i].mangled, rows[i].demangled),
			rows[i].want, "\"%s\" on %s", rows[i].pattern,
			rows[i].demangled ? rows[i].demangled : rows[i].mangled);
	/* 20 stars over a long name: quadratic at most. */
	char name[4001], pattern[64] = "";
	memset(name, 'a', 4000);
	name[4000] = '\0';
	for (int i = 0; i < 20; i++)
		strcat(pattern, "a*");
	strcat(pattern, "b");
	is_int(session_match(pattern, name, name), 0, "a hard pattern on a long name ends");
	return tap_done();
}
