/* A run's events as text for people and programs: one steady line on a terminal, a plain line every
 * while elsewhere, JSON lines on request. Text goes to a callback; the clock is that of the events.
 */
#ifndef NS_PROGRESS_H
#define NS_PROGRESS_H

#include "jobs/pipeline.h"

enum progress_style { PROGRESS_LINE, PROGRESS_LOG, PROGRESS_LINES, PROGRESS_SILENT };

struct progress {
    enum progress_style style;
    /* Whole pieces of text; PROGRESS_LINE sends carriage returns and erase codes too. */
    void (*write)(void *user, const char *text, size_t len);
    void *user;
    int64_t (*clock)(void); /* seconds since 1970, to tell when all is done; or NULL */
    size_t columns;         /* of the terminal: PROGRESS_LINE keeps within them; 0: not known */
    double last;            /* seconds of the run at the last steady line; below 0: none yet */
    bool shown;             /* a steady line stands on the terminal */
};

void progress_init(struct progress *p, enum progress_style style,
                   void (*write)(void *user, const char *text, size_t len), void *user);
void progress_event(struct progress *p, const struct pipeline_state *s);

/* "3 h 05 m", "12 m 30 s", "8 s"; "1.4 GB". */
void progress_duration(char *out, size_t size, double seconds);
void progress_bytes(char *out, size_t size, double bytes);
/* "Tue 06:30", of seconds since 1970 */
void progress_time(char *out, size_t size, int64_t at);

#endif
