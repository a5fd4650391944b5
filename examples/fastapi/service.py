"""Orders, executed at most once per idempotency key: FastAPI and SQLAlchemy, on asyncpg."""

import json, os, socket
from typing import Annotated

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pg_idempotency.fastapi import Idempotency
from pg_idempotency.sqlalchemy import async_units
from sqlalchemy import BigInteger, Identity, LargeBinary, Text, bindparam, cast, func, select, update
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from starlette.exceptions import HTTPException as AnyHTTPException

engine = create_async_engine(
    os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+asyncpg://"), pool_size=8, max_overflow=0,
    # no prepared statements are kept, because PgBouncer before 1.21 cannot pass them on
    connect_args={"statement_cache_size": 0, "prepared_statement_cache_size": 0,
                  "prepared_statement_name_func": lambda: ""})
sessions = async_sessionmaker(engine)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    owner: Mapped[str]
    item: Mapped[str]
    request: Mapped[str] = mapped_column(JSON)


class Stock(Base):
    __tablename__ = "stock"
    item: Mapped[str] = mapped_column(primary_key=True)
    pieces: Mapped[int]


def user_of(request: Request) -> str:
    """Whom the key belongs to: a user's id. A real service checks the token and finds its user; a token is no scope."""
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not bearer:
        raise HTTPException(401, "a bearer is wanted")
    return bearer


async def session():
    async with sessions() as db:
        yield db


idempotency = Idempotency(async_units(sessions), scope=user_of)
router = APIRouter(route_class=idempotency.route)
User = Annotated[str, Depends(user_of)]


@router.post("/orders")
async def create(request: Request, user: User, db: Annotated[AsyncSession, Depends(idempotency.db)]):
    body = await request.body()
    try:
        item = item_of(body)
        sent = bindparam("sent", body, LargeBinary)
        order = Order(owner=user, item=item, request=cast(func.convert_from(sent, "UTF8"), JSON))
        db.add(order)
        await db.flush()
        await db.execute(update(Stock).where(Stock.item == item).values(pieces=Stock.pieces - 1))
    except IntegrityError:
        raise HTTPException(409, "not in stock")
    except (ValueError, DBAPIError) as error:
        if isinstance(error, DBAPIError) and not error.orig.sqlstate.startswith("22"):
            raise
        raise HTTPException(400, "a JSON object with an item is wanted")  # not UTF-8, for example
    answer = b'{"order": %d, "request": %b}' % (order.id, body)
    return Response(answer, 201, {"Location": f"/orders/{order.id}"}, "application/json")


@router.get("/orders/{order}")
async def show(order: int, user: User, db: Annotated[AsyncSession, Depends(session)]):
    found = await db.scalar(select(cast(Order.request, Text)).where(Order.id == order, Order.owner == user))
    if found is None:
        raise HTTPException(404, "no such order")
    return Response(f'{{"order": {order}, "request": {found}}}', 200, media_type="application/json")


def item_of(body):
    """ValueError where there is none."""
    wanted = json.loads(body)
    if not isinstance(wanted, dict) or not isinstance(wanted.get("item"), str):
        raise ValueError
    return wanted["item"]


app = FastAPI()
app.include_router(router)


@app.exception_handler(AnyHTTPException)
async def error(request, error):
    return Response(json.dumps({"error": error.detail}), error.status_code, error.headers, "application/json")


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", 0))), backlog=128)
    print("listening on http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
