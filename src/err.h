/* Status codes and error messages.
 *
 * What can fail returns an enum status and takes a struct err last. The place that finds the fault
 * writes the message once: what, where, expected, found. Callers on the way up may put context in
 * front (err_wrap). One list holds code, public name and whose fault it is; the fault alone decides
 * what happens next: a job's fault fails that job, the machine's stops the run and keeps the queue,
 * the model's or ours refuses, the user's is a usage error. */
#ifndef NS_ERR_H
#define NS_ERR_H

enum fault { FAULT_NONE, FAULT_JOB, FAULT_MACHINE, FAULT_MODEL, FAULT_USER, FAULT_OURS };

/* code, public name (the `code` of failed jobs), whose fault */
#define STATUS_LIST(X)                                                                             \
    X(OK, "ok", FAULT_NONE)                                                                        \
    X(E_INTERNAL, "internal_error", FAULT_OURS)                                                    \
    X(E_USAGE, "usage", FAULT_USER)                                                                \
    X(E_NOMEM, "out_of_memory", FAULT_MACHINE)                                                     \
    X(E_BUDGET, "over_budget", FAULT_USER)                                                         \
    X(E_IO, "io_error", FAULT_MACHINE)                                                             \
    X(E_NOSPACE, "disk_full", FAULT_MACHINE)                                                       \
    X(E_MODEL, "bad_model", FAULT_MODEL)                                                           \
    X(E_DB, "bad_database", FAULT_MODEL)                                                           \
    X(E_LOCKED, "queue_locked", FAULT_USER)                                                        \
    X(E_LEASE, "lease_lost", FAULT_MACHINE)                                                        \
    X(E_INPUT, "input_rejected", FAULT_USER)                                                       \
    X(E_STOPPED, "stopped", FAULT_NONE)                                                            \
    X(E_INVALID_JSON, "invalid_json", FAULT_JOB)                                                   \
    X(E_INVALID_REQUEST, "invalid_request", FAULT_JOB)                                             \
    X(E_DUPLICATE_ID, "duplicate_id", FAULT_JOB)                                                   \
    X(E_UNSUPPORTED_FIELD, "unsupported_field", FAULT_JOB)                                         \
    X(E_IMAGE_MISSING, "image_missing", FAULT_JOB)                                                 \
    X(E_IMAGE_UNREADABLE, "image_unreadable", FAULT_JOB)                                           \
    X(E_IMAGE_TRUNCATED, "image_truncated", FAULT_JOB)                                             \
    X(E_IMAGE_UNSUPPORTED, "image_unsupported", FAULT_JOB)                                         \
    X(E_IMAGE_TOO_LARGE, "image_too_large", FAULT_JOB)                                             \
    X(E_IMAGE_CHANGED, "image_changed", FAULT_JOB)                                                 \
    X(E_PROMPT_TOO_LONG, "prompt_too_long", FAULT_JOB)                                             \
    X(E_TIMEOUT, "timeout", FAULT_JOB)                                                             \
    X(E_INVALID_OUTPUT_JSON, "invalid_output_json", FAULT_JOB)                                     \
    X(E_ENGINE, "engine_error", FAULT_JOB)                                                         \
    X(E_CANCELLED, "cancelled", FAULT_JOB)

enum status {
#define X(code, name, fault) code,
    STATUS_LIST(X)
#undef X
        STATUS_COUNT
};

#define ERR_TEXT_BYTES 768

/* The message of the last failure: one line, UTF-8, no final newline. Cut to fit, never overrun. */
struct err {
    enum status code;
    char text[ERR_TEXT_BYTES];
};

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Write code and message; returns code, so that a caller may `return err_set(...)`. e may be NULL.
 */
enum status err_set(struct err *e, enum status code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Like err_set for E_IO / E_NOSPACE from errno: appends ": <strerror>". */
enum status err_errno(struct err *e, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Put "context: " in front of a message that is set. */
void err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* "invalid_json", ... and back; status_by_name returns STATUS_COUNT for an unknown name. */
const char *status_name(enum status code);
enum status status_by_name(const char *name);
enum fault status_fault(enum status code);

#endif
