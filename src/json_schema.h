/* The compiler of schemas, in two files: json_schema.c walks the document, json_rules.c makes the
 * nodes of single types. */
#ifndef NS_JSON_SCHEMA_H
#define NS_JSON_SCHEMA_H

#include "src/json.h"
#include "src/json_nodes.h"

struct json_compiler {
    const struct json *j;
    struct json_grammar *g;
    uint16_t *made;  /* node of each schema of the document, or JSON_NODE_NONE */
    struct buf path; /* JSON pointer of what is being read */
    struct err *e;
    int nesting;
};

/* Sets the message "schema at POINTER: what"; _in: at a member of the schema under way. */
enum status json_schema_fault(struct json_compiler *c, enum status code, const char *what);
enum status json_schema_fault_in(struct json_compiler *c, uint32_t member, enum status code,
                                 const char *what);
/* Goes down to a member or item, and back up with what enter returned. */
size_t json_schema_enter(struct json_compiler *c, const char *key, size_t len);
void json_schema_leave(struct json_compiler *c, size_t before);
/* The node of a schema, made if need be; of a member of the schema under way. */
enum status json_schema_compile(struct json_compiler *c, uint32_t schema, uint16_t *out);
enum status json_schema_member(struct json_compiler *c, uint32_t member, uint16_t *out);

/* A node without content; its kind may be set later. */
enum status json_rule_add(struct json_compiler *c, enum json_kind kind, uint16_t *out);
/* Makes the node a union of these. */
enum status json_rule_options(struct json_compiler *c, uint16_t node, const uint16_t *options,
                              uint16_t n);
/* Fills the node from `type` (the member, a name or a list of names) or, when it is 0, from the
 * type that the keywords speak of. */
enum status json_rule_types(struct json_compiler *c, uint32_t schema, uint32_t type, uint16_t node);
/* ... from the values of enum or the one of const, those of the type beside it (0: of any). */
enum status json_rule_literals(struct json_compiler *c, uint32_t member, uint32_t type,
                               uint16_t node);
/* The nodes from JSON_N_ANY to JSON_N_WORDS. */
enum status json_rule_fixed(struct json_compiler *c);

#endif
