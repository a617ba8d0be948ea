/* The only file that knows the operating system: files, direct reads, clock, machine limits,
 * durable renames. */
#ifndef NS_OS_H
#define NS_OS_H

#include "src/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A file opened for reading by position. Safe to read from several threads. */
struct os_file {
    int fd;
    uint64_t size;
    bool direct; /* O_DIRECT is in force: offset, length and buffer must be multiples of
                    OS_DIRECT_ALIGN */
};

#define OS_DIRECT_ALIGN 4096

/* want_direct falls back to buffered reads where the file system refuses; f->direct tells. E_IO;
 * the message names the path. */
enum status os_open(struct os_file *f, const char *path, bool want_direct, struct err *e);
void os_close(struct os_file *f);
/* Reads exactly len bytes; a short file is E_IO "ends at byte N". Retries EINTR and transient
 * errors. */
enum status os_read_at(const struct os_file *f, uint64_t offset, void *dst, size_t len,
                       const char *path, struct err *e);
/* A whole small file, NUL-terminated, malloc'ed; E_IO if it has more than max_bytes. */
enum status os_read_file(const char *path, size_t max_bytes, char **out, size_t *len,
                         struct err *e);

/* True when a file or folder of that name can be seen. */
bool os_exists(const char *path);
/* Where a symbolic link ends, which need not exist; path itself when it is none. malloc'ed; NULL
 * with errno. */
char *os_follow(const char *path);
/* One name, or one file under two names. */
bool os_same_file(const char *a, const char *b);

/* Publish a file whole or not at all: written beside its final place under a temporary name,
 * synced, renamed, the folder synced. A crash leaves the old file or the new one, and perhaps a
 * temporary one, which the next to publish in the folder removes (os_temp.h). A symbolic link
 * stays, what it names is replaced. E_USAGE when there is something else than a regular file. */
struct os_publish {
    FILE *f;
    char *path, *tmp;
    bool failed; /* a write failed; commit will say so */
    struct err why;
};

enum status os_publish_begin(struct os_publish *p, const char *path, struct err *e);
/* Errors are kept and reported by commit, so that writers need not check each call. */
void os_publish_write(struct os_publish *p, const void *data, size_t len);
/* Everything written so far is on the disk and no longer in the page cache: who reads p->tmp now
 * reads the disk. After an error end with abort. */
enum status os_publish_sync(struct os_publish *p, struct err *e);
/* Ends p either way; after an error the temporary file is gone and the old file untouched. */
enum status os_publish_commit(struct os_publish *p, struct err *e);
void os_publish_abort(struct os_publish *p);

/* The folder path, made where it is missing; its parent must be there. */
enum status os_make_folder(const char *path, struct err *e);
/* What this user may still write to the file system that holds path. */
enum status os_free_bytes(const char *path, uint64_t *bytes, struct err *e);

/* The kernel's lock on a file, made where it is missing and left behind, or on a folder: any death
 * of the process ends the lock. Shared locks exclude only an exclusive one. E_LOCKED when another
 * process holds it. */
enum status os_lock(int *fd, const char *path, bool shared, struct err *e);
void os_unlock(int *fd);

/* True on a network file system (NFS, SMB, AFS, Ceph, Lustre, 9P, FUSE); path or its folder exists.
 */
bool os_is_remote(const char *path);

/* "host, processor", one line: what tells this machine from others. */
void os_machine_name(char *out, size_t size);

/* Seconds on a clock that never jumps; seconds since 1970. */
double os_now(void);
int64_t os_unix_time(void);

/* host:process:seconds:hash, a name no other process has; the hash tells where the process number
 * counts. */
void os_process_name(char *out, size_t size);
/* Was it the name of a process of this machine that is gone? False when in doubt. */
bool os_process_gone(const char *name);

/* What this process may use: the least of machine and cgroup v1 / v2 limits. */
uint64_t os_ram_bytes(void);
unsigned os_cpus(void);
/* Largest resident size so far, bytes. */
uint64_t os_peak_rss(void);

/* Tests: the n-th read / write / sync from now fails (errno EIO, or ENOSPC for writes); n < 0 =
 * off. */
enum os_fault_kind { OS_FAULT_READ, OS_FAULT_WRITE, OS_FAULT_SYNC, OS_FAULT_KINDS };
void os_fault(enum os_fault_kind kind, int64_t n, bool forever);

#endif
