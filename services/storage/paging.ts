/** Lists that are cut into pages, and say whether another one follows. */
import type { SqlClient, Statement } from "effect/sql"
import type { Listed, Page } from "#domain/people.ts"

/** The page's rows, and one more where another page follows. */
export const pageLimit = (sql: SqlClient.SqlClient, { page, pageSize }: Page): Statement.Fragment =>
  sql`LIMIT ${pageSize + 1}::int OFFSET ${(page - 1) * pageSize}::int8`

/** What a statement with `pageLimit` returned. */
export const cutPage = <Row>(rows: ReadonlyArray<Row>, { pageSize }: Page): Listed<Row> => ({
  rows: rows.slice(0, pageSize),
  hasMore: rows.length > pageSize
})
