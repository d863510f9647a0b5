/* compat.c - old versions of the few glibc functions that have newer ones; see glibc.h. */
#include <pthread.h>

#include "agent/glibc.h"

OLD(void *, dlopen, const char *, int);
OLD(void *, dlsym, void *, const char *);
OLD(int, dladdr, const void *, void *);
OLD(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
OLD(int, pthread_join, pthread_t, void **);
OLD(long, strtol, const char *, char **, int);
OLD(unsigned long, strtoul, const char *, char **, int);
OLD(long long, strtoll, const char *, char **, int);
OLD(unsigned long long, strtoull, const char *, char **, int);

void *__wrap_dlopen(const char *path, int mode);
void *__wrap_dlsym(void *lib, const char *name);
int __wrap_dladdr(const void *at, void *info);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_join(pthread_t t, void **result);
long __wrap___isoc23_strtol(const char *s, char **end, int base);
unsigned long __wrap___isoc23_strtoul(const char *s, char **end, int base);
long long __wrap___isoc23_strtoll(const char *s, char **end, int base);
unsigned long long __wrap___isoc23_strtoull(const char *s, char **end, int base);

void *__wrap_dlopen(const char *path, int mode)
{
	return old_dlopen(path, mode);
}

void *__wrap_dlsym(void *lib, const char *name)
{
	return old_dlsym(lib, name);
}

int __wrap_dladdr(const void *at, void *info)
{
	return old_dladdr(at, info);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	return old_pthread_create(t, attr, fn, arg);
}

int __wrap_pthread_join(pthread_t t, void **result)
{
	return old_pthread_join(t, result);
}

long __wrap___isoc23_strtol(const char *s, char **end, int base)
{
	return old_strtol(s, end, base);
}

unsigned long __wrap___isoc23_strtoul(const char *s, char **end, int base)
{
	return old_strtoul(s, end, base);
}

long long __wrap___isoc23_strtoll(const char *s, char **end, int base)
{
	return old_strtoll(s, end, base);
}

unsigned long long __wrap___isoc23_strtoull(const char *s, char **end, int base)
{
	return old_strtoull(s, end, base);
}
