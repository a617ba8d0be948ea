/* `repack`: a model's files written anew for reading experts. Progress is one line on a terminal,
 * a line a minute elsewhere. */
#include "jobs/cmd.h"

#include "jobs/progress.h"
#include "src/os.h"
#include "src/repack.h"

#include <stdio.h>
#include <unistd.h>

struct show {
    bool quiet, tty, shown;
    double begun, last;
};

static void tell_progress(struct show *w, const struct repack_state *s, double now)
{
    char done[24], total[24], rate[24], left[32];
    double seconds = now - w->begun, per_second = (double)s->done / seconds;
    progress_bytes(done, sizeof done, (double)s->done);
    progress_bytes(total, sizeof total, (double)s->total);
    progress_bytes(rate, sizeof rate, per_second);
    progress_duration(left, sizeof left, (double)(s->total - s->done) / per_second);
    fprintf(stderr, "%s%s %s: %s of %s written or compared, %s/s, %s left%s", w->tty ? "\r" : "",
            s->checking ? "comparing" : "writing", s->file, done, total, rate, left,
            w->tty ? "\033[K" : "\n");
    fflush(stderr);
    w->shown = w->tty;
}

static bool on_progress(void *user, const struct repack_state *s)
{
    struct show *w = user;
    double now = os_now();
    if (!w->quiet && s->done && now - w->last >= (w->tty ? 0.5 : 60)) {
        w->last = now;
        tell_progress(w, s, now);
    }
    return cmd_stop_wanted() > 0;
}

static void tell_end(const struct repack_state *s)
{
    char bytes[24];
    progress_bytes(bytes, sizeof bytes, (double)s->bytes);
    fprintf(stderr, "%zu files, %s, %llu experts: %zu written, %zu there already", s->files, bytes,
            (unsigned long long)s->experts, s->written, s->kept);
    if (s->damaged) fprintf(stderr, ", %zu of the written were damaged", s->damaged);
    fprintf(stderr, "; all equal to the model's\n");
}

int cmd_repack(const struct cmd_options *o)
{
    struct err e;
    struct mem mem;
    struct repack_state s;
    if (!o->model) return cmd_usage("repack: needs --model DIR");
    if (!o->output) return cmd_usage("repack: needs --output DIR");
    struct show w = {.quiet = o->quiet, .tty = isatty(STDERR_FILENO)};
    w.begun = w.last = os_now();
    struct repack_opts r = {.mem = &mem,
                            .from = o->model,
                            .to = o->output,
                            .shard_bytes = o->shard_bytes,
                            .progress = on_progress,
                            .user = &w};
    cmd_catch_signals();
    mem_init(&mem, 0);
    enum status rc = repack(&r, &s, &e);
    mem_close(&mem);
    if (w.shown) fprintf(stderr, "\r\033[K");
    if (rc == E_STOPPED) {
        cmd_fail(&e);
        return cmd_stop_exit();
    }
    if (rc) return cmd_fail(&e);
    if (!o->quiet) tell_end(&s);
    return EXIT_DONE;
}
