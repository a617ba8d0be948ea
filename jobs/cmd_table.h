/* The table of options and how their values are read. For jobs/cmd*.c alone. */
#ifndef NS_CMD_TABLE_H
#define NS_CMD_TABLE_H

#include "jobs/cmd.h"

enum cmd_kind {
    CMD_FLAG,    /* bool */
    CMD_TEXT,    /* const char * */
    CMD_COUNT,   /* uint64_t, from min to max */
    CMD_COUNT32, /* uint32_t */
    CMD_REAL,    /* double, from min to max */
    CMD_SIZE,    /* uint64_t bytes: 512M, 2.6G */
    CMD_SECONDS, /* double: 90, 30s, 5m, 8h, 1h30m */
    CMD_CHOICE,  /* an enum, in the order of `choices` */
    CMD_OWN,     /* read by `own` */
};

struct cmd_option {
    const char *name;
    char letter;     /* short name; 0: none */
    const char *arg; /* name of its value; NULL for a flag; "[X]" may be left out */
    const char *help;
    unsigned commands; /* enum cmd_bit */
    enum cmd_kind kind;
    size_t at; /* offset in struct cmd_options */
    double min, max;
    unsigned has;        /* enum job_has, for settings of jobs */
    const char *choices; /* "a|b|c" */
    enum status (*own)(struct cmd_options *o, const char *value, struct err *e);
};

/* In the order of the help, up to a name of NULL. */
extern const struct cmd_option cmd_table[];

/* Read a value into o; messages name the option. */
enum status cmd_read_value(struct cmd_options *o, const struct cmd_option *option,
                           const char *value, struct err *e);

enum status cmd_read_halt(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_deadline(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_shard(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_cache(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_draft(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_effort(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_stop(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_map(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_only(struct cmd_options *o, const char *value, struct err *e);
enum status cmd_read_input(struct cmd_options *o, const char *value, struct err *e);

enum status cmd_list_add(struct cmd_list *l, const char *text, struct err *e);

/* The help of all commands, and of one. */
void cmd_help(void);
void cmd_help_of(enum cmd_bit command, const char *name, const char *operands, const char *summary);

#endif
