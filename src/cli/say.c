/* say.c - messages of the command, and reading its input files. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"

static void say_line(const char *fmt, va_list ap)
{
	/* One write, so that lines of the target do not fall between the pieces. */
	char line[4096];
	int at = snprintf(line, sizeof(line), "egpu: ");
	int n = vsnprintf(line + at, sizeof(line) - at - 1, fmt, ap);
	size_t len = n < 0 ? (size_t)at : (size_t)at + n;
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	fflush(stdout);
	fwrite(line, 1, len, stderr);
	fflush(stderr);
}

void say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say_line(fmt, ap);
	va_end(ap);
}

int say_fail(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say_line(fmt, ap);
	va_end(ap);
	return EGPU_FAILED;
}

int say_diag(const char *what, const struct diag *d)
{
	const char *text = d->err ? d->text : "failed without a reason given";
	if (d->line && d->column)
		return say_fail("%s: line %u, column %u: %s", what, d->line, d->column, text);
	if (d->line)
		return say_fail("%s: line %u: %s", what, d->line, text);
	return say_fail("%s: %s", what, text);
}

static int read_all(int fd, size_t max, char **data, size_t *size)
{
	size_t len = 0, cap = 65536;
	char *p = malloc(cap + 1);
	for (;;) {
		if (!p)
			return -ENOMEM;
		ssize_t n = read(fd, p + len, cap - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || len + (size_t)n > max) {
			int err = n < 0 ? -errno : -EFBIG;
			free(p);
			return err;
		}
		if (!n)
			break;
		len += (size_t)n;
		if (len == cap) {
			char *q = realloc(p, 2 * cap + 1);
			if (!q)
				free(p);
			p = q;
			cap *= 2;
		}
	}
	p[len] = 0;
	*data = p;
	*size = len;
	return 0;
}

int read_file(const char *path, size_t max, char **data, size_t *size, struct diag *d)
{
	bool is_stdin = !strcmp(path, "-");
	/* O_NONBLOCK: a FIFO given by mistake must not hang the open. */
	int fd = is_stdin ? 0 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return diag_set(d, errno, "%s", strerror(errno));
	struct stat st;
	int err = 0;
	if (!is_stdin && !fstat(fd, &st) && S_ISDIR(st.st_mode))
		err = -EISDIR;
	/* Its writer may need time: <(command) in a shell. Without one there is nothing to read. */
	if (!is_stdin)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	if (!err)
		err = read_all(fd, max, data, size);
	if (!is_stdin)
		close(fd);
	if (err == -EFBIG)
		return diag_set(
			d, EFBIG, "larger than %zu MiB, which no input of this kind is", max >> 20);
	return err ? diag_set(d, -err, "%s", strerror(-err)) : 0;
}

int check_out(const char *path)
{
	if (!path || !strcmp(path, "-"))
		return 0;
	/* ENXIO: a FIFO that nobody reads yet. */
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	bool made = fd < 0 && errno == ENOENT;
	if (made)
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == ENXIO
			       ? 0
			       : say_fail("%s: cannot be written: %s", path, strerror(errno));
	close(fd);
	if (made)
		unlink(path);
	return 0;
}

int write_out(const char *path, FILE *otherwise, const struct buf *text)
{
	FILE *f = !path ? otherwise : !strcmp(path, "-") ? stdout : fopen(path, "we");
	if (!f)
		return say_fail("%s: cannot be written: %s", path, strerror(errno));
	if (text->failed)
		say("out of memory: the report is not complete");
	fwrite(text->data, 1, text->len, f);
	bool own = path && f != stdout, bad = ferror(f);
	if (own ? fclose(f) : fflush(f))
		bad = true;
	return bad ? say_fail("%s: cannot be written: %s", path ? path : "output", strerror(errno))
		   : 0;
}
