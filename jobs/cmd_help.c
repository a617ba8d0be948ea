/* The help, made from the tables of commands and options. */
#include "jobs/cmd_table.h"

#include <stdio.h>
#include <string.h>

#define WIDTH  80
#define INDENT 28

/* text from column `at` on, wrapped at WIDTH and indented to INDENT */
static void print_wrapped(const char *text, size_t at)
{
    if (at + 1 > INDENT) {
        printf("\n");
        at = 0;
    }
    printf("%*s", (int)(INDENT - at), "");
    at = INDENT;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at > INDENT && at + 1 + n > WIDTH) {
            printf("\n%*s", INDENT, "");
            at = INDENT;
        }
        at += (size_t)printf("%s%.*s", at > INDENT ? " " : "", (int)n, text);
        text += n + strspn(text + n, " ");
    }
    printf("\n");
}

static void print_option(const struct cmd_option *x)
{
    char left[64], text[400];
    const char *arg = x->arg ? x->arg : "";
    bool optional = arg[0] == '[';
    char letter[8] = "";
    if (x->letter) snprintf(letter, sizeof letter, "-%c, ", x->letter);
    if (optional)
        snprintf(left, sizeof left, "  %s--%s[=%s", letter, x->name, arg + 1);
    else
        snprintf(left, sizeof left, "  %s--%s%s%s", letter, x->name, *arg ? " " : "", arg);
    size_t n = (size_t)snprintf(text, sizeof text, "%s", x->help);
    const char *comma = ": ", *note = " (default)";
    for (const char *c = x->choices; c && n < sizeof text; comma = ", ", note = "") {
        size_t len = strcspn(c, "|");
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s%s", comma, (int)len, c, note);
        c = c[len] ? c + len + 1 : NULL;
    }
    print_wrapped(text, (size_t)printf("%s", left));
}

void cmd_help_of(enum cmd_bit command, const char *name, const char *operands, const char *summary)
{
    printf("usage: nightshift %s [options] %s\n\n%s\n\n", name, operands, summary);
    for (const struct cmd_option *x = cmd_table; x->name; x++)
        if (x->commands & command) print_option(x);
    print_wrapped("this text", (size_t)printf("  -h, --help"));
    printf("\nSizes are bytes or have K, M, G, T behind them, powers of 1024: 2.6G is 2.6 * 2^30.\n"
           "Times are seconds or have s, m, h, d behind them. Options may stand anywhere,\n"
           "as --name VALUE or --name=VALUE; after -- everything is an operand.\n");
}

static void print_command(const char *name, const char *operands, const char *summary)
{
    print_wrapped(summary, (size_t)printf("  %s %s", name, operands));
}

void cmd_help(void)
{
    printf("usage: nightshift COMMAND [options] ...\n\n"
           "Runs a queue of text and image prompts over a mixture-of-experts model that is larger\n"
           "than memory, overnight; keeps results and progress through anything.\n\n");
#define X(bit, name, operands, summary) print_command(#name, operands, summary);
    CMD_LIST(X)
#undef X
    printf(
        "\nnightshift COMMAND --help tells the options; nightshift --version the version.\n\n"
        "Exit: 0 all done; 1 some jobs failed; 2 mistake in the command line; 3 input rejected,\n"
        "nothing run; 4 model, queue or memory unusable; 5 storage stopped the run; 6 the queue\n"
        "is held by another run; 7 stopped by a limit, work left; 130, 143 stopped by a signal\n"
        "(SIGINT; SIGTERM or SIGUSR1), work left.\n");
}
