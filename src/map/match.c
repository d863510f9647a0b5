/* Kernel names and patterns. */
#include "map/internal.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* -- taking a demangled name apart -- */

struct piece {
	const char *at;
	size_t len;
};

static bool ends_with(struct piece p, const char *tail)
{
	size_t n = strlen(tail);
	return p.len >= n && !memcmp(p.at + p.len - n, tail, n);
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$';
}

/* Cuts what may follow the parameters: " const", " &", " [clone .part.0]". */
static struct piece cut_tail(struct piece p)
{
	static const char *const tails[] = { " const", " volatile", " &&", " &", " noexcept" };
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++)
			if (ends_with(p, tails[i])) {
				p.len -= strlen(tails[i]);
				more = true;
			}
		if (p.len && p.at[p.len - 1] == ']') {
			size_t i = p.len;
			while (i && p.at[i - 1] != '[')
				i--;
			if (i > 1 && p.at[i - 2] == ' ') {
				p.len = i - 2;
				more = true;
			}
		}
	}
	return p;
}

/* Cuts the last balanced (...), which is the parameter list when the name ends with it. */
static struct piece cut_params(struct piece p)
{
	p = cut_tail(p);
	if (!p.len || p.at[p.len - 1] != ')')
		return p;
	size_t depth = 0;
	for (size_t i = p.len; i--;) {
		if (p.at[i] == ')')
			depth++;
		else if (p.at[i] == '(' && !--depth) {
			/* "operator()" without parameters, and "(anonymous namespace)" alone, are
			 * names. */
			struct piece name = { p.at, i };
			if (!i || ends_with(name, "operator"))
				return p;
			return name;
		}
	}
	return p;
}

/* Length of the symbol after "operator": what looks like brackets there is none. */
static size_t operator_symbol(const char *at, size_t left)
{
	static const char *const symbols[] = { "()", "[]", "<=>", "<<=", ">>=", "->*", "<<", ">>",
		"<=", ">=", "->", "<", ">" };
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		size_t n = strlen(symbols[i]);
		if (n <= left && !memcmp(at, symbols[i], n))
			return n;
	}
	return 0;
}

struct parts {
	size_t name;      /* where the qualified name starts, behind a return type */
	size_t base;      /* where its last component starts */
	size_t arguments; /* where the last component's template arguments start, or the end */
};

enum { MAX_PARENS = 64 };

/* Walks the name once. Angle brackets nest only among themselves: those opened inside parentheses
 * end with them, because an expression there may hold a lone > or <. */
static struct parts take_apart(struct piece p)
{
	struct parts r = { 0, 0, p.len };
	size_t angles = 0, parens = 0, saved[MAX_PARENS];
	bool in_operator = false;
	for (size_t i = 0; i < p.len; i++) {
		char c = p.at[i];
		bool outside = !angles && !parens;
		if (p.len - i >= 8 && !memcmp(p.at + i, "operator", 8) &&
			(!i || !is_word(p.at[i - 1])) &&
			(i + 8 == p.len || !is_word(p.at[i + 8]))) {
			i += 7;
			i += operator_symbol(p.at + i + 1, p.len - i - 1);
			in_operator = in_operator ||
				      outside; /* a conversion's type or "new" follows a space */
		} else if (c == '(' || c == '{' || c == '[') {
			if (parens < MAX_PARENS)
				saved[parens] = angles;
			parens++;
			angles = 0;
		} else if (c == ')' || c == '}' || c == ']') {
			if (parens) {
				parens--;
				angles = parens < MAX_PARENS ? saved[parens] : 0;
			}
		} else if (c == '<') {
			if (outside && r.arguments == p.len)
				r.arguments = i;
			angles++;
		} else if (c == '>' && angles && p.at[i - 1] != '-') {
			angles--;
		} else if (outside && c == ' ' && !in_operator) {
			r.name = r.base = i + 1;
			r.arguments = p.len;
		} else if (outside && c == ':' && i + 1 < p.len && p.at[i + 1] == ':' &&
			   !in_operator) {
			i++;
			r.base = i + 1;
			r.arguments = p.len;
		}
	}
	return r;
}

enum { MAX_NAMES = 6 };

/* The spellings a pattern is tried on: mangled, qualified and base name, the last two with and
 * without the template arguments of the last component, and the demangled name as lists show it. */
static int spellings(const char *mangled, const char *demangled, struct piece names[MAX_NAMES])
{
	int n = 0;
	names[n++] = (struct piece){ mangled, strlen(mangled) };
	if (!demangled)
		return n;
	struct piece all = cut_params((struct piece){ demangled, strlen(demangled) });
	struct parts at = take_apart(all);
	names[n++] = (struct piece){ demangled, strlen(demangled) };
	names[n++] = (struct piece){ all.at + at.base, at.arguments - at.base };
	names[n++] = (struct piece){ all.at + at.name, all.len - at.name };
	if (at.arguments < all.len) {
		names[n++] = (struct piece){ all.at + at.base, all.len - at.base };
		names[n++] = (struct piece){ all.at + at.name, at.arguments - at.name };
	}
	return n;
}

/* -- shell patterns; fnmatch(3) would ask the locale and can take exponential time -- */

/* [...] at *p against c; *p moves behind it. A bracket without an end is an ordinary character. */
static bool glob_class(const char **p, unsigned char c)
{
	const char *s = *p + 1;
	bool negate = *s == '!' || *s == '^', hit = false;
	s += negate;
	for (bool first = true; *s && (*s != ']' || first); first = false) {
		unsigned char lo = (unsigned char)*s, hi;
		if (*s == '\\' && s[1])
			lo = (unsigned char)*++s;
		hi = lo;
		s++;
		if (*s == '-' && s[1] && s[1] != ']') {
			s++;
			if (*s == '\\' && s[1])
				s++;
			hi = (unsigned char)*s++;
		}
		hit = hit || (lo <= c && c <= hi);
	}
	if (!*s) {
		(*p)++;
		return c == '[';
	}
	*p = s + 1;
	return hit != negate;
}

static bool glob_one(const char **p, unsigned char c)
{
	switch (**p) {
	case '\0':
		return false;
	case '?':
		(*p)++;
		return true;
	case '[':
		return glob_class(p, c);
	case '\\':
		if ((*p)[1])
			(*p)++;
		/* fall through */
	default:
		return (unsigned char)*(*p)++ == c;
	}
}

/* On a mismatch only the last star needs to be tried again. */
static bool glob(const char *p, struct piece name)
{
	const char *star = NULL;
	size_t i = 0, star_i = 0;
	while (i < name.len) {
		const char *next = p;
		if (*p == '*') {
			star = ++p;
			star_i = i;
		} else if (glob_one(&next, (unsigned char)name.at[i])) {
			p = next;
			i++;
		} else if (star) {
			p = star;
			i = ++star_i;
		} else {
			return false;
		}
	}
	while (*p == '*')
		p++;
	return !*p;
}

/* -- regular expressions -- */

static int match_regex(const char *pattern, const struct piece *names, int n)
{
	size_t len = strlen(pattern);
	regex_t re;
	int hit = 0;
	char *text = malloc(len);
	if (!text)
		return -ENOMEM;
	memcpy(text, pattern + 1, len - 2);
	text[len - 2] = '\0';
	int bad = regcomp(&re, text, REG_EXTENDED | REG_NOSUB);
	free(text);
	if (bad)
		return -EINVAL;
	for (int i = 0; i < n && !hit; i++) {
		char *name = malloc(names[i].len + 1);
		if (!name) {
			hit = -ENOMEM;
			break;
		}
		memcpy(name, names[i].at, names[i].len);
		name[names[i].len] = '\0';
		hit = !regexec(&re, name, 0, NULL, 0);
		free(name);
	}
	regfree(&re);
	return hit;
}

int session_match(const char *pattern, const char *mangled, const char *demangled)
{
	struct piece names[MAX_NAMES];
	size_t len = strlen(pattern);
	int n = spellings(mangled, demangled, names);
	for (int i = 0; i < n; i++)
		if (names[i].len == len && !memcmp(names[i].at, pattern, len))
			return 1;
	if (len >= 3 && pattern[0] == '/' && pattern[len - 1] == '/')
		return match_regex(pattern, names, n);
	for (int i = 0; i < n; i++)
		if (glob(pattern, names[i]))
			return 1;
	return 0;
}
