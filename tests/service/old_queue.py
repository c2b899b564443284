"""PostgreSQL databases as made with the oldest procrastinate that earlier versions allowed."""

from __future__ import annotations

from pathlib import Path

import psycopg
from procrastinate.schema import SchemaManager

from lightmeter.service.store.postgres import BASELINE_QUEUE_MIGRATION, CLOCK, SELECT_SCHEMA, connection_string
from lightmeter.service.store.schema import SCHEMA, VERSION
from lightmeter.service.store.sql_dialects import to_postgres_tables


def queue_schema_scripts(last=BASELINE_QUEUE_MIGRATION) -> list[str]:
    """Return the scripts of the installed procrastinate up to one of them, which make the schema of its version."""
    paths = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    return [path.read_text(encoding="utf-8") for path in paths if path.stem <= last]


def create_old_database(database, scripts=None) -> None:
    """Create the tables of a service with the job queue of the oldest procrastinate, without a record of migrations."""
    with psycopg.connect(connection_string(database), autocommit=True) as db:
        db.execute("CREATE SCHEMA lightmeter")
        db.execute("SET search_path TO lightmeter")
        db.execute("CREATE TABLE version (version BIGINT NOT NULL, swept_at DOUBLE PRECISION NOT NULL)")
        db.execute("INSERT INTO version VALUES (%s, 0)", (VERSION,))
        db.execute(to_postgres_tables(SCHEMA) + CLOCK)
        for script in queue_schema_scripts() if scripts is None else scripts:
            db.execute(script)


def describe_queue(database) -> list[tuple]:
    """Return the tables' columns, functions, triggers, indices and enum values of the job queue."""
    with psycopg.connect(connection_string(database)) as db:
        db.execute(SELECT_SCHEMA)
        return db.execute("""
            SELECT 'column', table_name::text, column_name::text, data_type::text FROM information_schema.columns
                WHERE table_schema = 'lightmeter' AND table_name LIKE 'procrastinate%'
            UNION ALL SELECT 'function', proname::text, pg_get_function_arguments(oid),
                regexp_replace(prosrc, '\\s+', ' ', 'g')
                FROM pg_proc WHERE pronamespace = 'lightmeter'::regnamespace
            UNION ALL SELECT 'trigger', tgname::text, tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger
                WHERE NOT tgisinternal
            UNION ALL SELECT 'index', indexname::text, tablename::text, indexdef FROM pg_indexes
                WHERE schemaname = 'lightmeter'
            UNION ALL SELECT 'enum', enumtypid::regtype::text, enumlabel::text, '' FROM pg_enum
            ORDER BY 1, 2, 3, 4
        """).fetchall()
