"""How does Alembic reach the database?  Through the connection that `memory_service migrate` hands over.

Run by `hindsight migrate`; plain `alembic` works too with HINDSIGHT_DATABASE_URL set.
"""

from alembic import context
from sqlalchemy import Connection, create_engine

from memory_service.settings import load_settings
from memory_service.stores.postgres.pool import sqlalchemy_url


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=None, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    run(handed_over)
else:
    with create_engine(sqlalchemy_url(load_settings().database_url)).connect() as connection:
        run(connection)
        connection.commit()
