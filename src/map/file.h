/* file.h - the few file and process operations that sessions need; internal to src/map.
 *
 * Only symbols of glibc 2.28 and older are used here and in all that the agent links, so stat(2)
 * goes through syscall(2).
 */
#ifndef EGPU_MAP_FILE_H
#define EGPU_MAP_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* As fstat and lstat, whose names are symbols of glibc 2.33, newer than the agent may need: 0 or -errno. */
int file_stat(int fd, struct stat *st);
int file_stat_at(int dir, const char *name, struct stat *st);
/* Opens an existing regular file that belongs to `owner` and nobody else can touch; no links are
 * followed, nothing blocks. The descriptor and *size, or -errno. */
int file_open(const char *path, int flags, uid_t owner, uint64_t *size);
/* Makes a new file of `size` bytes, mode 0600. `reserve`: takes the memory now, so that a later
 * write to a mapping cannot fault. The descriptor or -errno; nothing is left behind on failure. */
int file_create(const char *path, uint64_t size, bool reserve);
/* Takes the memory of a range. 0 also where the file system cannot; -ENOSPC and the like when there
 * is none. */
int file_reserve(int fd, uint64_t offset, uint64_t bytes);
/* All n bytes or -errno (-EIO at the end of the file). */
int file_read_at(int fd, void *to, size_t n, uint64_t offset);
int file_write_at(int fd, const void *from, size_t n, uint64_t offset);
/* One write(2) where the file ends, or into what has no end. Too large a file is no signal either. */
int file_append(int fd, const void *from, size_t n);
/* Advisory lock on a whole file, owned by the open description: 0, or -EAGAIN after `ms`
 * milliseconds. */
int file_lock(int fd, bool exclusive, int ms);
void file_unlock(int fd);
void file_sleep_ms(int ms);

/* Digits at *p into *out, *p moves past them; false without digits or on overflow. */
bool parse_u64(const char **p, uint64_t *out);

/* Field 22 of /proc/PID/stat, clock ticks after boot. 0, or -errno (-ENOENT: no such process). A
 * zombie counts as gone. */
int process_start_time(pid_t pid, uint64_t *ticks);
/* start 0: unknown, any process of that number counts. Where process_known_as was called, others cannot be asked
 * about by their numbers, and count as alive. */
bool process_alive(pid_t pid, uint64_t start);

/* The number by which those who share a session with this process know it: getpid(), unless this process lives in
 * another pid namespace than they do and has been told (process_known_as). */
pid_t process_self(void);
void process_known_as(pid_t pid);
bool process_is_foreign(void);

#endif
