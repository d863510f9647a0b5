/* names.h - kernel names as people write them.
 *
 * All results live in the arena given.
 */
#ifndef EGPU_CLI_NAMES_H
#define EGPU_CLI_NAMES_H

#include "base/arena.h"

/* "void ns::scale<float>(float*, int)" of "_ZN2ns5scaleIfEEvPT_i"; the name itself when it is not
 * mangled. */
const char *name_demangle(struct arena *a, const char *mangled);
/* Without return type and parameters, at most `max` bytes: "ns::scale<float>". What was cut is
 * marked with "..". */
const char *name_short(struct arena *a, const char *mangled, size_t max);
/* Without namespaces and template arguments too: "scale". */
const char *name_base(struct arena *a, const char *mangled);

#endif
