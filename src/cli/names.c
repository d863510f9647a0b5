/* names.c - demangling by libiberty, and shortening for tables. */
#include <libiberty/demangle.h>
#include <stdlib.h>
#include <string.h>

#include "cli/names.h"

/* Mangled names from outside: libiberty's recursion is limited by its default, its output by this.
 */
enum { MAX_MANGLED = 4096 };

static const char *demangle(struct arena *a, const char *mangled, int options)
{
	if (strncmp(mangled, "_Z", 2) || strlen(mangled) > MAX_MANGLED)
		return mangled;
	char *plain = cplus_demangle_v3(mangled, options);
	const char *out = plain ? arena_strdup(a, plain) : mangled;
	free(plain);
	return out ? out : mangled;
}

const char *name_demangle(struct arena *a, const char *mangled)
{
	return demangle(a, mangled, DMGL_PARAMS | DMGL_ANSI | DMGL_TYPES);
}

const char *name_short(struct arena *a, const char *mangled, size_t max)
{
	/* Without DMGL_PARAMS neither parameters nor the return type are printed. */
	const char *s = demangle(a, mangled, DMGL_ANSI);
	size_t n = strlen(s);
	if (n <= max || max < 8)
		return s;
	const char *cut = arena_printf(a, "%.*s..%s", (int)(max - 2 - max / 3), s, s + n - max / 3);
	return cut ? cut : s;
}

const char *name_base(struct arena *a, const char *mangled)
{
	const char *s = demangle(a, mangled, DMGL_ANSI), *begin = s, *end = s;
	int depth = 0;
	for (const char *p = s; *p; p++) {
		if (*p == '<' || *p == '(')
			depth++;
		else if (*p == '>' || *p == ')')
			depth--;
		else if (!depth && p[0] == ':' && p[1] == ':')
			begin = p + 2;
	}
	for (end = begin; *end && *end != '<' && *end != '('; end++)
		;
	const char *base = end > begin ? arena_strndup(a, begin, (size_t)(end - begin)) : NULL;
	return base ? base : s;
}
